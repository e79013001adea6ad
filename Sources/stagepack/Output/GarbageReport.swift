import StageContainer
import StageEngine
import StageModel
import StagePack
import SystemPackage

/// What `gc` prints: the sums over all containers, then each of them.
struct GarbageReport: Encodable, CustomStringConvertible {
    /// The containers that were tidied up.
    var containers: [Part] = []

    private enum CodingKeys: String, CodingKey {
        case containers, generations, inUse, leftovers, downloads, evicted, size, quota, isDryRun
    }

    func encode(to encoder: any Encoder) throws {
        var members = encoder.container(keyedBy: CodingKeys.self)
        try members.encode(sum(\.generations), forKey: .generations)
        try members.encode(sum(\.inUse), forKey: .inUse)
        try members.encode(sum(\.leftovers), forKey: .leftovers)
        try members.encode(sum(\.downloads), forKey: .downloads)
        let evicted = containers.flatMap { $0.evicted ?? [] }
        if !evicted.isEmpty { try members.encode(evicted, forKey: .evicted) }
        // A quota is one container's.
        if containers.count == 1 {
            try members.encodeIfPresent(containers[0].size, forKey: .size)
            try members.encodeIfPresent(containers[0].quota, forKey: .quota)
        }
        try members.encodeIfPresent(containers.lazy.compactMap(\.isDryRun).first, forKey: .isDryRun)
        try members.encode(containers, forKey: .containers)
    }

    private func sum(_ count: KeyPath<Part, Int>) -> Int {
        containers.reduce(0) { $0 + $1[keyPath: count] }
    }

    var description: String {
        guard containers.count != 1 else { return containers[0].description }
        return containers.map { "container \($0.container)\n\($0)" }.joined(separator: "\n")
    }

    /// What `gc` prints of one container.
    struct Part: Encodable, CustomStringConvertible {
        /// The container.
        var container = ""
        /// Whose container it is; `nil` for one in another place.
        var location: ContainerLocation?
        var generations = 0
        var inUse = 0
        var leftovers = 0
        var downloads = 0
        /// What went to keep the quota; of a dry run everything that would go.
        var evicted: [EvictionReport]?
        /// What the packs take, where there is a quota.
        var size: ByteCount?
        /// What they may take.
        var quota: ByteCount?
        /// Whether nothing was done.
        var isDryRun: Bool?

        mutating func add(_ removal: Removal) {
            generations += removal.generations
            inUse += removal.inUse
            leftovers += removal.leftovers
            downloads += removal.downloads
        }

        mutating func add(_ evictions: [Eviction]) {
            guard !evictions.isEmpty else { return }
            evicted = (evicted ?? []) + evictions.map(EvictionReport.init)
        }

        mutating func compare(_ size: ByteCount, with quota: ByteCount?) {
            guard let quota else { return }
            self.size = size
            self.quota = quota
        }

        /// How much more there is than there may be; `nil` for nothing.
        var excess: ByteCount? {
            guard let size, let quota, size > quota else { return nil }
            return size - quota
        }

        var description: String {
            let evicted = evicted ?? []
            let packs = evicted.count { !$0.isGeneration }
            var lines = evicted.map { "\(isDryRun == true ? "would evict" : "evicted") \($0)" }
            if isDryRun == true {
                lines.append(
                    "would remove \(generations.quantity(of: "generation")), \(packs.quantity(of: "pack"))"
                )
            } else {
                let packs = packs == 0 ? "" : "\(packs.quantity(of: "pack")), "
                lines.append(
                    "removed \(generations.quantity(of: "generation")), \(packs)\(downloads.quantity(of: "download")), "
                        + "\(leftovers.quantity(of: "leftover"))"
                )
            }
            if inUse > 0 {
                lines[lines.count - 1] +=
                    "; \(inUse.quantity(of: "generation is", plural: "generations are")) being read"
            }
            if let size, let quota { lines.append("packs take \(size) of \(quota)") }
            return lines.joined(separator: "\n")
        }
    }
}

extension ContainerScope {
    /// The failure to keep the quota of a container; `nil` if it is kept.
    func failure(of part: GarbageReport.Part) -> CommandFailure? {
        guard let excess = part.excess else { return nil }
        return CommandFailure(
            status: .noSpace,
            message: "the container is \(excess) over its quota: what is left is essential, pinned "
                + "or read, or no manifest offers it",
            hint: "raise the quota, or remove packs"
                + (hints.local("status").map { ": \($0) lists them" } ?? ""),
            retry: .later
        )
    }
}

extension ContainerView {
    /// Whether a container that is looked in is not there.
    func isMissing(_ path: FilePath) -> Bool {
        guard let position = containers.firstIndex(of: path) else { return true }
        return readers[position] == nil
    }
}
