import FoundationEssentials
import StageContainer
import StageEngine
import StageModel

/// A generation that goes to make room, or went.
struct EvictionReport: Codable, CustomStringConvertible {
    var pack: PackID
    var version: Int?
    var generation: String
    var size: ByteCount
    /// Why it may go: `obsolete`, `previous`, `onDemand` or `prefetch`; the pack is gone with the last
    /// two.
    var reason: String
    /// When the pack was loaded last, or staged if that was later.
    var lastUsed: Date

    private var text: String

    /// Whether the pack stays staged.
    var isGeneration: Bool { ["obsolete", "previous"].contains(reason) }

    private enum CodingKeys: String, CodingKey {
        case pack, version, generation, size, reason, lastUsed
        case text = "explanation"
    }

    init(_ eviction: Eviction) {
        let stored = eviction.generation
        pack = stored.id
        version = stored.name.content?.version
        generation = stored.name.description
        size = stored.size
        reason =
            switch eviction.reason {
            case .obsolete: "obsolete"
            case .previous: "previous"
            case .onDemand: "onDemand"
            case .prefetch: "prefetch"
            }
        lastUsed = Date(timeIntervalSince1970: Double(stored.lastUsed))
        text = eviction.explanation
    }

    var description: String { "\(pack) \(version ?? 0) (\(size), \(text))" }
}

extension Eviction {
    /// Why it goes, as a fragment.
    var explanation: String {
        let date = Date(timeIntervalSince1970: Double(generation.lastUsed)).formatted(.iso8601)
        return switch reason {
        case .obsolete: "an obsolete generation"
        case .previous: "the previous generation"
        case .onDemand: "policy 'onDemand', last used \(date)"
        case .prefetch: "policy 'prefetch', last used \(date)"
        }
    }
}

extension StagingReport {
    /// Says what is gone in the place of what was to go.
    mutating func settle(_ gone: [Eviction]) {
        evicted = nil
        for index in packs.indices where packs[index].outcome == .evicted {
            packs[index].outcome = .present
            packs[index].reason = "staged, and in use since it was to make room"
        }
        add(gone)
    }

    /// Adds what is gone.
    mutating func add(_ gone: [Eviction]) {
        guard !gone.isEmpty else { return }
        evicted = (evicted ?? []) + gone.map(EvictionReport.init)
        for eviction in gone where eviction.isOfPack {
            guard let index = packs.firstIndex(where: { $0.id == eviction.generation.id }) else {
                continue
            }
            packs[index].outcome = .evicted
            packs[index].reason = eviction.explanation
        }
    }
}
