/// What the machine says of its network and its power.
///
/// Unknown is not no: what nobody says is `nil` or ``Connectivity/unknown``, and holds nothing up.
public struct Conditions: Hashable, Sendable {
    /// How far the network reaches, in the words of NetworkManager's `NMConnectivityState`.
    public enum Connectivity: String, Hashable, Sendable, CaseIterable {
        /// Nobody says.
        case unknown
        /// The machine is not connected.
        case none
        /// Somebody has to log in first.
        case portal
        /// There is a network, and the internet was not reached over it.
        case limited
        /// The internet was reached.
        case full
    }

    /// How far the network reaches.
    public var connectivity: Connectivity = .unknown
    /// Whether the network costs money by the byte, which NetworkManager may have guessed.
    public var isExpensive: Bool?
    /// Whether somebody asked that the network be spared.
    ///
    /// No service of Linux tells that apart from ``isExpensive``, so only configuration says it.
    public var isConstrained: Bool?
    /// Whether the machine runs on its battery.
    public var isOnBattery: Bool?
    /// How much is left in the battery, from 0 to 100.
    public var batteryPercentage: Int?
    /// Whether the user asked that power be saved.
    public var isSavingPower: Bool?

    /// Creates conditions of which nothing is known.
    public init() {}

    /// Conditions of which nothing is known.
    public static let unknown = Conditions()

    /// The conditions with what is known in `others` in place of what is here.
    public func overridden(by others: Conditions) -> Conditions {
        var result = self
        if others.connectivity != .unknown { result.connectivity = others.connectivity }
        result.isExpensive = others.isExpensive ?? isExpensive
        result.isConstrained = others.isConstrained ?? isConstrained
        result.isOnBattery = others.isOnBattery ?? isOnBattery
        result.batteryPercentage = others.batteryPercentage ?? batteryPercentage
        result.isSavingPower = others.isSavingPower ?? isSavingPower
        return result
    }
}

/// Something that a transfer may ask of the machine.
public enum ConditionNeed: String, Hashable, Sendable, CaseIterable {
    /// A network that leads somewhere.
    case network
    /// A network that costs nothing by the byte.
    case inexpensiveNetwork
    /// A network that nobody asked to be spared.
    case unconstrainedNetwork
    /// Power from the mains.
    case mainsPower
    /// A user who did not ask that power be saved.
    case fullPower
}

extension Conditions {
    /// Whether a transfer that needs this may run: it may unless somebody says the opposite.
    ///
    /// A network on which the internet was not reached is one to try: the servers wanted may be near.
    public func isSatisfied(_ need: ConditionNeed) -> Bool {
        switch need {
        case .network: connectivity != .none && connectivity != .portal
        case .inexpensiveNetwork: isExpensive != true
        case .unconstrainedNetwork: isConstrained != true
        case .mainsPower: isOnBattery != true
        case .fullPower: isSavingPower != true
        }
    }

    /// The needs that are not met, of those that are given, in their order.
    public func unmet(_ needs: [ConditionNeed]) -> [ConditionNeed] {
        needs.filter { !isSatisfied($0) }
    }
}
