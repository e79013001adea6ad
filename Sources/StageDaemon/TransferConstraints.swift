import StageConditions
import StageControl
import StageModel

/// Network and power conditions that a transfer requires; the journal stores the raw values.
struct TransferConstraints: OptionSet, Hashable, Sendable {
    let rawValue: UInt8

    /// A network that is not metered.
    static let unmetered = TransferConstraints(rawValue: 1 << 0)
    /// External power, and no power saver.
    static let power = TransferConstraints(rawValue: 1 << 2)

    /// Combines the constraints of a session with those of a request.
    init(session: SessionConfiguration, request: TransferRequest) {
        self = session.isDiscretionary ? [.unmetered, .power] : []
        if !session.allowsExpensiveNetworkAccess || request.allowsExpensiveNetworkAccess == false {
            insert(.unmetered)
        }
        if let conditions = request.staging?.conditions {
            formUnion(TransferConstraints(conditions))
        }
    }

    private init(_ conditions: UpdateConditions) {
        self = []
        if conditions.requiresExternalPower { insert(.power) }
        if !conditions.allowsExpensiveNetworkAccess { insert(.unmetered) }
    }

    init(rawValue: UInt8) { self.rawValue = rawValue }

    /// Returns the reasons why the conditions violate the constraints; unknown conditions violate none.
    func unmet(in conditions: Conditions) -> [PendingReason.Kind] {
        conditions.obstacles(
            allowsMetered: !contains(.unmetered),
            needsPower: contains(.power)
        )
        .compactMap { PendingReason.Kind(rawValue: $0.rawValue) }
    }
}
