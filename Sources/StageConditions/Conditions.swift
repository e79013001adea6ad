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
    /// `true` on a constrained network (low data mode).
    ///
    /// No service of Linux reports it separately from ``isExpensive``, so it comes from configuration only.
    package var isConstrained: Bool?
    /// `true` while the machine runs on battery power.
    package var isOnBattery: Bool?
    /// Charge of the battery, from 0 to 100.
    package var batteryPercentage: Int?
    /// `true` if the user has enabled the power saver.
    package var isSavingPower: Bool?

    /// Creates unknown conditions.
    package init() {}

    /// Unknown conditions.
    package static let unknown = Conditions()

    /// Returns the conditions with known values of `others` in place of their own.
    package func overridden(by others: Conditions) -> Conditions {
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

/// Requirement of a transfer.
package enum ConditionNeed: String, Hashable, Sendable, CaseIterable {
    /// A usable network.
    case network
    /// A network that is not metered.
    case inexpensiveNetwork
    /// A network that is not constrained.
    case unconstrainedNetwork
    /// External power.
    case mainsPower
    /// No power saver.
    case fullPower
}

extension Conditions {
    /// Returns whether a requirement is met; unknown conditions meet it.
    ///
    /// A network without internet access meets ``ConditionNeed/network``, since the servers may be local.
    package func isSatisfied(_ need: ConditionNeed) -> Bool {
        switch need {
        case .network: connectivity != .none && connectivity != .portal
        case .inexpensiveNetwork: isExpensive != true
        case .unconstrainedNetwork: isConstrained != true
        case .mainsPower: isOnBattery != true
        case .fullPower: isSavingPower != true
        }
    }

    /// Returns those of the requirements that are not met, in order.
    package func unmet(_ needs: [ConditionNeed]) -> [ConditionNeed] {
        needs.filter { !isSatisfied($0) }
    }
}
