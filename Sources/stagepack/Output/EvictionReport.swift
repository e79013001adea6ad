import FoundationEssentials
import StageContainer
import StageEngine
import StageModel

/// A generation that was evicted to free space, or that a dry run would evict.
struct EvictionReport: Encodable, CustomStringConvertible {
    var pack: PackID
    var version: Int?
    var generation: String
    /// The bytes that the eviction frees; for a quota, those that count for it.
    var size: ByteCount
    /// The reason that permits the eviction: `obsolete`, `previous`, `onDemand` or `prefetch`; the last two
    /// evict the whole pack.
    var reason: String
    /// The time when the pack was last loaded, or when it was staged if that was later.
    var lastUsed: Date

    /// The reason in a form for programs.
    private var explanation: String
    /// The reason in a form for people.
    private var text: String

    /// True if only a generation is evicted, and the pack stays staged.
    var isGeneration: Bool { ["obsolete", "previous"].contains(reason) }

    private enum CodingKeys: String, CodingKey {
        case pack, version, generation, size, reason, lastUsed, explanation
    }

    init(_ eviction: Eviction) {
        let stored = eviction.generation
        pack = stored.id
        version = stored.name.content?.version
        generation = stored.name.description
        size = eviction.freed ?? stored.size
        reason = eviction.reason.rawValue
        lastUsed = Date(timeIntervalSince1970: Double(stored.lastUsed))
        explanation = eviction.reason.text(stored.lastUsed, audience: .programs)
        text = eviction.reason.text(stored.lastUsed, audience: .people)
    }

    var description: String { "\(pack) \(version ?? 0) (\(size), \(text))" }
}

extension EvictionReason {
    /// Returns the reason as a fragment; `lastUsed` is in seconds since 1970.
    func text(_ lastUsed: Int64, audience: Audience) -> String {
        switch self {
        case .obsolete: "an obsolete generation"
        case .previous: "the previous generation"
        case .onDemand: "policy 'onDemand', last used \(audience.text(ofTime: lastUsed))"
        case .prefetch: "policy 'prefetch', last used \(audience.text(ofTime: lastUsed))"
        }
    }
}
