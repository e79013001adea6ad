import StageConditions
import StageControl
import StageModel

/// Network and power conditions that a transfer requires.
struct TransferConstraints: OptionSet, Hashable, Sendable {
    let rawValue: UInt8

    /// A network that is not metered.
    static let unmetered = TransferConstraints(rawValue: 1 << 0)
    /// A network that is not constrained (low data mode).
    static let unconstrained = TransferConstraints(rawValue: 1 << 1)
    /// External power, and no power saver.
    static let power = TransferConstraints(rawValue: 1 << 2)

    /// Combines the constraints of a session with those of a request.
    init(session: SessionConfiguration, request: TransferRequest) {
        self = session.isDiscretionary ? [.unmetered, .power] : []
        if !session.allowsExpensiveNetworkAccess || request.allowsExpensiveNetworkAccess == false {
            insert(.unmetered)
        }
        if !session.allowsConstrainedNetworkAccess
            || request.allowsConstrainedNetworkAccess == false
        {
            insert(.unconstrained)
        }
        if let conditions = request.staging?.conditions {
            formUnion(TransferConstraints(conditions))
        }
    }

    private init(_ conditions: UpdateConditions) {
        self = []
        if conditions.requiresExternalPower { insert(.power) }
        if !conditions.allowsExpensiveNetworkAccess { insert(.unmetered) }
        if !conditions.allowsConstrainedNetworkAccess { insert(.unconstrained) }
    }

    init(rawValue: UInt8) { self.rawValue = rawValue }

    /// Returns the reasons why the conditions violate the constraints; unknown conditions violate none.
    func unmet(in conditions: Conditions) -> [PendingReason.Kind] {
        var reasons: [PendingReason.Kind] = []
        switch conditions.connectivity {
        case .none: reasons.append(.offline)
        case .portal: reasons.append(.portal)
        case .unknown, .limited, .full: break
        }
        if contains(.unmetered), conditions.isExpensive == true { reasons.append(.metered) }
        if contains(.unconstrained), conditions.isConstrained == true {
            reasons.append(.constrained)
        }
        if contains(.power) {
            if conditions.isOnBattery == true { reasons.append(.onBattery) }
            if conditions.isSavingPower == true { reasons.append(.powerSaver) }
        }
        return reasons
    }
}
