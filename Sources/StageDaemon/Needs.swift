import StageConditions
import StageControl
import StageModel

/// What a transfer needs of network and power.
struct Needs: OptionSet, Hashable, Sendable {
    let rawValue: UInt8

    /// A network that costs nothing by the byte.
    static let unmetered = Needs(rawValue: 1 << 0)
    /// A network that nobody asked to be spared.
    static let unconstrained = Needs(rawValue: 1 << 1)
    /// Mains power, and no wish to save it.
    static let power = Needs(rawValue: 1 << 2)

    /// The needs of a session's transfers, as far as the request does not add to them.
    init(_ session: SessionConfiguration, _ request: TransferRequest) {
        self = session.isDiscretionary ? [.unmetered, .power] : []
        if !session.allowsExpensiveNetworkAccess || request.allowsExpensiveNetworkAccess == false {
            insert(.unmetered)
        }
        if !session.allowsConstrainedNetworkAccess
            || request.allowsConstrainedNetworkAccess == false
        {
            insert(.unconstrained)
        }
        if let conditions = request.staging?.conditions { formUnion(Needs(conditions)) }
    }

    private init(_ conditions: UpdateConditions) {
        self = []
        if conditions.requiresExternalPower { insert(.power) }
        if !conditions.allowsExpensiveNetworkAccess { insert(.unmetered) }
        if !conditions.allowsConstrainedNetworkAccess { insert(.unconstrained) }
    }

    init(rawValue: UInt8) { self.rawValue = rawValue }

    /// What of the needs is not met; what nobody can tell counts as met.
    func unmet(in conditions: Conditions) -> [HoldReason] {
        var reasons: [HoldReason] = []
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
