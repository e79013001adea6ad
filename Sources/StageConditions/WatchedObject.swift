/// Service on the bus that reports conditions.
enum WatchedService: String, CaseIterable {
    /// NetworkManager.
    case network = "org.freedesktop.NetworkManager"
    /// UPower.
    case power = "org.freedesktop.UPower"
    /// Power profiles, by their name since power-profiles-daemon 0.20.
    case profiles = "org.freedesktop.UPower.PowerProfiles"
    /// Power profiles, by their former name.
    case formerProfiles = "net.hadess.PowerProfiles"

    /// Objects of the service that are read.
    var objects: [WatchedObject] { WatchedObject.allCases.filter { $0.service == self } }
}

/// Object whose properties are read.
enum WatchedObject: CaseIterable {
    /// NetworkManager, with `Connectivity` and `Metered`.
    case network
    /// UPower, with `OnBattery`.
    case power
    /// Power profiles, with `ActiveProfile`.
    case profiles
    /// Power profiles by their former name.
    case formerProfiles

    /// Service of the object.
    var service: WatchedService {
        switch self {
        case .network: .network
        case .power: .power
        case .profiles: .profiles
        case .formerProfiles: .formerProfiles
        }
    }

    /// Path of the object.
    var path: String {
        switch self {
        case .network: "/org/freedesktop/NetworkManager"
        case .power: "/org/freedesktop/UPower"
        case .profiles: "/org/freedesktop/UPower/PowerProfiles"
        case .formerProfiles: "/net/hadess/PowerProfiles"
        }
    }

    /// Interface with the properties.
    var interface: String { service.rawValue }

    /// Properties that are read.
    var properties: Set<String> {
        switch self {
        case .network: ["Connectivity", "Metered"]
        case .power: ["OnBattery"]
        case .profiles, .formerProfiles: ["ActiveProfile"]
        }
    }
}
