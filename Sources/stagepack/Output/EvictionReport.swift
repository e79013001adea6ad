import FoundationEssentials
import StageContainer
import StageEngine
import StageModel

/// A generation that goes to make room, or went.
struct EvictionReport: Encodable, CustomStringConvertible {
    var pack: PackID
    var version: Int?
    var generation: String
    var size: ByteCount
    /// Why it may go: `obsolete`, `previous`, `onDemand` or `prefetch`; the pack is gone with the last
    /// two.
    var reason: String
    /// When the pack was loaded last, or staged if that was later.
    var lastUsed: Date

    /// The reason as programs read it.
    private var explanation: String
    /// The reason as people read it.
    private var text: String

    /// Whether the pack stays staged.
    var isGeneration: Bool { ["obsolete", "previous"].contains(reason) }

    private enum CodingKeys: String, CodingKey {
        case pack, version, generation, size, reason, lastUsed, explanation
    }

    init(_ eviction: Eviction) {
        let stored = eviction.generation
        pack = stored.id
        version = stored.name.content?.version
        generation = stored.name.description
        size = stored.size
        reason = eviction.reason.rawValue
        lastUsed = Date(timeIntervalSince1970: Double(stored.lastUsed))
        explanation = eviction.reason.text(stored.lastUsed, readers: .programs)
        text = eviction.reason.text(stored.lastUsed, readers: .people)
    }

    var description: String { "\(pack) \(version ?? 0) (\(size), \(text))" }
}

extension EvictionReason {
    /// The reason as a fragment; `lastUsed` is in seconds since 1970.
    func text(_ lastUsed: Int64, readers: Readers) -> String {
        switch self {
        case .obsolete: "an obsolete generation"
        case .previous: "the previous generation"
        case .onDemand: "policy 'onDemand', last used \(readers.text(ofTime: lastUsed))"
        case .prefetch: "policy 'prefetch', last used \(readers.text(ofTime: lastUsed))"
        }
    }
}
