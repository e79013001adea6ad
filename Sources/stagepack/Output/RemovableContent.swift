import StageContainer
import StageEngine
import StageModel
import SystemPackage

/// The content of a container that is removed first to free space.
enum RemovableContent: Sendable {
    /// Generations that `gc` removes.
    case obsoleteGenerations
    /// Generations that `gc --previous` removes.
    case previousGenerations
    /// The pack whose removal frees most, and the space that it frees.
    case pack(PackID, size: ByteCount)

    /// Finds the content in the container at `path`; `nil` if nothing but `spared` packs may be evicted there.
    ///
    /// Reads all records of the container, and the status of the files of what may be evicted.
    init?(in path: FilePath, sparing spared: Set<PackID> = []) {
        // A hint omits the content of a container that does not exist or cannot be read.
        guard let reader = try? ContainerReader.open(path),
            var policy = try? EvictionPolicy(reader),
            (try? policy.measure(in: reader, sparing: spared)) != nil
        else { return nil }
        let evictions = policy.candidates(sparing: spared)
        let kinds: [(reason: EvictionReason, content: RemovableContent)] = [
            (.obsolete, .obsoleteGenerations), (.previous, .previousGenerations),
        ]
        for (reason, content) in kinds {
            let generations = evictions.filter { $0.reason == reason }
            // Generations that share most of their files free little.
            guard generations.freedBytes > .zero,
                generations.freedBytes + generations.freedBytes >= generations.size
            else { continue }
            self = content
            return
        }
        var largest: (id: PackID, size: ByteCount)?
        for pack in evictions where pack.isOfPack {
            // Removing a pack removes all of its generations.
            let size = evictions.filter { $0.generation.id == pack.generation.id }.freedBytes
            if size > largest?.size ?? .zero { largest = (pack.generation.id, size) }
        }
        guard let largest else { return nil }
        self = .pack(largest.id, size: largest.size)
    }
}

extension HintSource {
    /// The end of a hint to free space: the command that frees it, or the one that shows what takes it; `nil` if no
    /// option names the container.
    var spaceCommand: String? {
        switch removable {
        case .obsoleteGenerations: local("gc").map { ", or run \($0)" }
        case .previousGenerations: local("gc", "--previous").map { ", or run \($0)" }
        case .pack(let id, let size):
            local("remove", id.text).map { ", or run \($0), which frees \(size)" }
        case nil: local("du").map { ": \($0) shows what packs take" }
        }
    }
}
