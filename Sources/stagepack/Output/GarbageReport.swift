import StageContainer
import StageEngine
import StageModel
import StagePack
import SystemPackage

/// Output of `gc`: the sums over all containers, then each of them.
struct GarbageReport: Encodable, CustomStringConvertible {
    /// `true` if nothing was removed.
    var isDryRun = false
    /// The processed containers.
    var containers: [Part] = []

    private enum CodingKeys: String, CodingKey {
        case containers, generations, inUse, leftovers, downloads, evicted, isDryRun
        case size, quota, excess, removable
    }

    func encode(to encoder: any Encoder) throws {
        var members = encoder.container(keyedBy: CodingKeys.self)
        try members.encode(sum(\.generations), forKey: .generations)
        try members.encode(sum(\.inUse), forKey: .inUse)
        try members.encode(sum(\.leftovers), forKey: .leftovers)
        try members.encode(sum(\.downloads), forKey: .downloads)
        try members.encode(containers.flatMap(\.evicted), forKey: .evicted)
        // A quota applies to a single container, so several have no sum.
        if containers.count == 1 {
            try members.encodeIfPresent(containers[0].size, forKey: .size)
            try members.encodeIfPresent(containers[0].quota, forKey: .quota)
            try members.encodeIfPresent(containers[0].excess, forKey: .excess)
            try members.encodeIfPresent(containers[0].removable, forKey: .removable)
        }
        try members.encode(isDryRun, forKey: .isDryRun)
        try members.encode(containers, forKey: .containers)
    }

    private func sum(_ count: KeyPath<Part, Int>) -> Int {
        containers.reduce(0) { $0 + $1[keyPath: count] }
    }

    var description: String {
        guard containers.count != 1 else { return containers[0].description }
        return containers.map { "container \($0.container)\n\($0)" }.joined(separator: "\n")
    }

    /// Output of `gc` for one container.
    struct Part: Encodable, CustomStringConvertible {
        /// The container.
        var container = ""
        /// The owner of the container, user or system; `nil` for a container at another path.
        var location: ContainerLocation?
        var generations = 0
        var inUse = 0
        var leftovers = 0
        var downloads = 0
        /// The evictions to enforce the quota; in a dry run, all planned evictions.
        var evicted: [EvictionReport] = []
        /// The bytes of the packs; `nil` without a quota.
        var size: ByteCount?
        /// The quota.
        var quota: ByteCount?
        /// The bytes above the quota; `nil` if there are none.
        var excess: ByteCount?
        /// The bytes that could be removed, which are too few; `nil` unless the quota is exceeded.
        var removable: ByteCount?
        /// The packs that could be removed; `nil` unless the quota is exceeded.
        var removablePacks: [PackID]?
        /// `true` if nothing was removed.
        var isDryRun = false

        mutating func add(_ removal: Removal) {
            generations += removal.generations
            inUse += removal.inUse
            leftovers += removal.leftovers
            downloads += removal.downloads
        }

        mutating func add(_ evictions: [Eviction]) {
            evicted += evictions.map(EvictionReport.init)
        }

        mutating func compare(_ policy: EvictionPolicy, with quota: ByteCount?) {
            guard let quota else { return }
            size = policy.lastingSize
            self.quota = quota
            let excess = policy.excess(over: quota)
            guard excess > .zero else { return }
            let rest = policy.candidates(sparing: [])
            self.excess = excess
            removable = rest.size
            removablePacks = rest.filter(\.isOfPack).map(\.generation.id)
        }

        var description: String {
            let packs = evicted.count { !$0.isGeneration }
            var lines = evicted.map { "\(isDryRun ? "would evict" : "evicted") \($0)" }
            if isDryRun {
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
    /// Returns the failure for a container that exceeds its quota; `nil` if it does not.
    func failure(of part: GarbageReport.Part) -> CommandFailure? {
        guard let excess = part.excess else { return nil }
        let kept = "is essential, pinned or read, or no manifest offers it"
        let names = (part.removablePacks ?? []).map(\.text).named(upTo: 3, of: "pack")
        let removable = part.removable ?? .zero
        let reason =
            if names.isEmpty {
                ": what is left \(kept)"
            } else if removable < excess {
                ", and only \(removable) could be removed (\(names)), so no pack was: all else \(kept)"
            } else {
                ": packs that could be removed (\(names)) are still there"
            }
        return CommandFailure(
            status: .noSpace,
            message: "the container is \(excess) over its quota" + reason,
            hint: "raise the quota, or remove packs"
                + (hints.local("status").map { ": \($0) lists them" } ?? ""),
            retryAdvice: .later
        )
    }
}

extension ContainerView {
    /// Returns whether a container that readers search does not exist.
    func isMissing(_ path: FilePath) -> Bool {
        guard let position = containers.firstIndex(of: path) else { return true }
        return readers[position] == nil
    }
}
