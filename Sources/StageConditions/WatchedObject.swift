/// A service of the desktop that conditions are read from.
enum WatchedService: String, CaseIterable {
    /// NetworkManager.
    case network = "org.freedesktop.NetworkManager"
    /// UPower.
    case power = "org.freedesktop.UPower"
    /// The power profiles, under their name since power-profiles-daemon 0.20.
    case profiles = "org.freedesktop.UPower.PowerProfiles"
    /// The power profiles, under their former name.
    case formerProfiles = "net.hadess.PowerProfiles"

    /// The objects of the service that are read.
    var objects: [WatchedObject] { WatchedObject.allCases.filter { $0.service == self } }
}

/// An object whose properties conditions are read from.
enum WatchedObject: CaseIterable {
    /// NetworkManager, with `Connectivity` and `Metered`.
    case network
    /// UPower, with `OnBattery`.
    case power
    /// All batteries together, with `IsPresent` and `Percentage`.
    case battery
    /// The power profiles, with `ActiveProfile`.
    case profiles
    /// The power profiles under their former name.
    case formerProfiles

    /// The service that has the object.
    var service: WatchedService {
        switch self {
        case .network: .network
        case .power, .battery: .power
        case .profiles: .profiles
        case .formerProfiles: .formerProfiles
        }
    }

    /// The path of the object.
    var path: String {
        switch self {
        case .network: "/org/freedesktop/NetworkManager"
        case .power: "/org/freedesktop/UPower"
        case .battery: "/org/freedesktop/UPower/devices/DisplayDevice"
        case .profiles: "/org/freedesktop/UPower/PowerProfiles"
        case .formerProfiles: "/net/hadess/PowerProfiles"
        }
    }

    /// The interface that has the properties.
    var interface: String {
        self == .battery ? "org.freedesktop.UPower.Device" : service.rawValue
    }

    /// The properties that are read.
    var properties: Set<String> {
        switch self {
        case .network: ["Connectivity", "Metered"]
        case .power: ["OnBattery"]
        case .battery: ["IsPresent", "Percentage"]
        case .profiles, .formerProfiles: ["ActiveProfile"]
        }
    }
}
