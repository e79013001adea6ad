/// Network and power conditions of the machine.
///
/// Unknown conditions are `nil` or ``Connectivity/unknown``, and never prevent a transfer.
package struct Conditions: Hashable, Sendable {
    /// Connectivity, as in NetworkManager's `NMConnectivityState`.
    package enum Connectivity: String, Hashable, Sendable, CaseIterable {
        /// No service reports it.
        case unknown
        /// The machine is not connected to a network.
        case none
        /// A captive portal requires a login.
        case portal
        /// There is a network, but the internet cannot be reached.
        case limited
        /// The internet can be reached.
        case full
    }

    /// Connectivity of the network.
    package var connectivity: Connectivity = .unknown
    /// `true` on a metered network, according to NetworkManager, which may guess.
    package var isExpensive: Bool?
    /// `true` while the machine runs on battery power.
    package var isOnBattery: Bool?
    /// `true` if the user has enabled the power saver.
    package var isSavingPower: Bool?

    /// Creates unknown conditions.
    package init() {}

    /// Unknown conditions.
    package static let unknown = Conditions()
}

/// Condition that keeps a transfer waiting; the raw values are the codes of the control protocol's `PendingReason`.
package enum ConditionObstacle: String, Hashable, Sendable, CaseIterable {
    /// There is no network.
    case offline
    /// A captive portal requires a login.
    case portal
    /// The network is metered.
    case metered
    /// The machine runs on battery power.
    case onBattery
    /// The machine saves power.
    case powerSaver
}

extension Conditions {
    /// Returns the obstacles to a transfer, in the order of their declaration; unknown conditions are none.
    ///
    /// A network without internet access is no obstacle, since the servers may be local.
    package func obstacles(allowsMetered: Bool, needsPower: Bool) -> [ConditionObstacle] {
        var obstacles: [ConditionObstacle] = []
        if connectivity == .none { obstacles.append(.offline) }
        if connectivity == .portal { obstacles.append(.portal) }
        if !allowsMetered, isExpensive == true { obstacles.append(.metered) }
        if needsPower, isOnBattery == true { obstacles.append(.onBattery) }
        if needsPower, isSavingPower == true { obstacles.append(.powerSaver) }
        return obstacles
    }
}
