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
    /// The largest pack that may be evicted, and the space that it takes.
    case pack(PackID, size: ByteCount)

    /// Finds the content in the container at `path`; `nil` if nothing but `spared` packs may be evicted there.
    ///
    /// Reads all records of the container.
    init?(in path: FilePath, sparing spared: Set<PackID> = []) {
        // A hint does without the content of a container that is not there or cannot be read.
        guard let reader = try? ContainerReader.open(path), let policy = try? EvictionPolicy(reader)
        else { return nil }
        let evictions = policy.candidates(sparing: spared)
        guard let first = evictions.first else { return nil }
        switch first.reason {
        case .obsolete: self = .obsoleteGenerations
        case .previous: self = .previousGenerations
        case .onDemand, .prefetch:
            let sizes = evictions.map(\.generation)
            guard let largest = sizes.max(by: { $0.size < $1.size }) else { return nil }
            self = .pack(largest.id, size: largest.size)
        }
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
