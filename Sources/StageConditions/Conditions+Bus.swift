extension Conditions {
    /// Creates conditions from the properties of services; missing and invalid properties yield unknown conditions.
    init(readings: [WatchedObject: [String: BusValue]]) {
        let network = readings[.network] ?? [:]
        // NMConnectivityState.
        switch network["Connectivity"]?.number {
        case 1: connectivity = .none
        case 2: connectivity = .portal
        case 3: connectivity = .limited
        case 4: connectivity = .full
        default: connectivity = .unknown
        }
        // NMMetered: yes and guessed yes, no and guessed no.
        switch network["Metered"]?.number {
        case 1, 3: isExpensive = true
        case 2, 4: isExpensive = false
        default: isExpensive = nil
        }
        isOnBattery = readings[.power]?["OnBattery"]?.flag
        let profile =
            readings[.profiles]?["ActiveProfile"]?.text
            ?? readings[.formerProfiles]?["ActiveProfile"]?.text
        isSavingPower = profile.map { $0 == "power-saver" }
    }
}
