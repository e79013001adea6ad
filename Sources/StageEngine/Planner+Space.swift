package import StageContainer
import StageIndex
public import StageModel

extension Planner {
    /// The space to leave free on the file system beyond the planned use.
    public static let reserve = ByteCount.mebibytes(16)

    /// The inodes of a container for each pack: those of its records and links, of its generation without the pack's content,
    /// and of a download.
    package static let inodesOfRecords = 12

    /// The free space and inodes of the file system.
    package var available: AvailableSpace {
        AvailableSpace(bytes: freeSpace, inodes: freeInodes)
    }

    /// Returns the peak space needed to stage the pack: the rest of the archive, the files, and the overhead
    /// of the file system for each of them, without the files of an indexed pack that an interrupted run left.
    ///
    /// Includes the directories if the manifest states their number, or if the index of an indexed pack was read. If it was
    /// read, does not include files that the staged generation has, either.
    ///
    /// Does not include the current generation, which is counted as used space.
    public func space(for pack: Pack) -> ByteCount {
        let content = pack.contentSpace
        // An indexed pack needs space for its files only: its archive is used only if there is space for it
        // too.
        guard pack.index == nil else {
            let bound = max(.zero, content - (unfinished[pack.id]?.space ?? .zero))
            guard let measured = spaceByIndex[pack.id] else { return bound }
            let unstated = pack.directoryCount == nil ? measured.spaceOfDirectories : .zero
            return min(bound + unstated, measured.total.bytes)
        }
        return max(.zero, pack.downloadSize - (downloaded[pack.contentDigest] ?? .zero)) + content
    }

    /// Returns the maximum number of inodes needed to stage the pack: files, links, directories and the container's records,
    /// without those that an interrupted run left of an indexed pack.
    ///
    /// If neither the manifest states the number of directories nor the index was read, counts one directory, which is a lower
    /// bound. If the index was read, does not include files that the staged generation has.
    package func inodes(for pack: Pack) -> Int {
        guard pack.index != nil else { return pack.contentInodes + Self.inodesOfRecords }
        var left = 0
        if let found = unfinished[pack.id] {
            // Directories that are not counted cannot be subtracted.
            left = found.fileCount + (pack.directoryCount == nil ? 0 : found.directoryCount)
        }
        let bound = max(0, pack.contentInodes - left)
        guard let measured = spaceByIndex[pack.id] else { return bound + Self.inodesOfRecords }
        let unstated = pack.directoryCount == nil ? measured.directoryCount : 0
        return min(bound + unstated, measured.total.inodes) + Self.inodesOfRecords
    }

    /// Returns the space and the inodes needed to stage the pack.
    func usage(for pack: Pack) -> FileSystemUsage {
        FileSystemUsage(bytes: space(for: pack), inodes: inodes(for: pack))
    }

    /// Returns the indexed packs whose indexes may show that the packs of a selection fit on the file system; none if all
    /// fit without evictions.
    ///
    /// Omits small packs, which change little.
    package func packsToMeasure(for selection: PackSelection) -> [Pack] {
        guard manifest.packs.contains(where: { $0.index != nil }) else { return [] }
        let most = manifest.packs.reduce(FileSystemUsage.zero) { $0 + usage(for: $1) }
        guard available.shortage(for: most) != nil else { return [] }
        var planner = self
        planner.evictionPolicy = nil
        planner.quota = nil
        let plan = planner.plan(for: selection)
        guard plan.lacksSpace else { return [] }
        return plan.entries.filter { entry in
            guard entry.pack.index != nil, !entry.isKept, spaceByIndex[entry.pack.id] == nil,
                space(for: entry.pack) >= .mebibytes(1) || inodes(for: entry.pack) >= 256
            else { return false }
            return switch entry.decision {
            case .stage, .refuse(.noSpace), .refuse(.noInodes): true
            case .skip, .refuse, .evict: false
            }
        }
        .map(\.pack)
    }

    /// Returns the space that the packs of a selection need, and whether a run finds as much, with evictions.
    package mutating func compareSpace(
        for selection: PackSelection,
        in reader: ContainerReader
    ) throws(StageError) -> SpaceComparison {
        let plan = try self.plan(for: selection, in: reader)
        var comparison = SpaceComparison()
        for entry in plan.entries {
            switch entry.decision {
            case .stage:
                comparison.needed += entry.space
                comparison.neededInodes += entry.inodes
            case .refuse(.noSpace), .refuse(.noInodes):
                comparison.needed += space(for: entry.pack)
                comparison.neededInodes += inodes(for: entry.pack)
            case .skip, .refuse, .evict: break
            }
        }
        guard plan.lacksSpace else { return comparison }
        comparison.lacksInodesAlone = plan.lacksInodesAlone
        var planner = assumingLeastSpace(for: selection)
        let least = try planner.plan(for: selection, in: reader)
        comparison.result = .mayFit
        if least.lacksSpace {
            comparison.result = .lacks
            comparison.lacksInodesAlone = least.lacksInodesAlone
        }
        return comparison
    }

    /// Returns the planner with the least space that the packs may need by their indexes, which a run would read.
    ///
    /// Links need no block, and files of the staged generation none at all.
    func assumingLeastSpace(for selection: PackSelection) -> Planner {
        var planner = self
        for pack in packsToMeasure(for: selection) {
            let isFirst = staged[pack.id] == nil
            let files = FileSystemUsage(
                bytes: isFirst ? pack.installedSize : .zero,
                inodes: isFirst ? pack.fileCount : 0
            )
            let directories = ContentIndex.usage(ofDirectories: pack.directoryCount ?? 0)
            let found = unfinished[pack.id]
            let left = FileSystemUsage(
                bytes: found?.space ?? .zero,
                inodes: (found?.fileCount ?? 0) + (found?.directoryCount ?? 0)
            )
            let least = files + directories - left
            planner.spaceByIndex[pack.id] = SpaceByIndex(
                total: FileSystemUsage(
                    bytes: max(.zero, least.bytes),
                    inodes: max(0, least.inodes)
                ),
                directoryCount: 0
            )
        }
        return planner
    }
}

/// The space and inodes that packs need on the file system, compared with those that a run would find there.
package struct SpaceComparison: Equatable, Sendable {
    /// The maximum space that the packs need, without ``Planner/reserve``.
    package var needed = ByteCount.zero
    /// The maximum number of inodes that the packs need, without ``AvailableSpace/reservedInodes``.
    package var neededInodes = 0
    /// `true` if the packs that do not fit lack inodes, and no pack lacks bytes.
    package var lacksInodesAlone = false
    /// The result.
    package var result = Result.fits

    /// Results of the comparison.
    package enum Result: Int, Comparable, Sendable {
        /// The packs fit.
        case fits
        /// Some packs do not fit by the manifest alone, but perhaps by their indexes, which a run reads.
        case mayFit
        /// Some packs do not fit.
        case lacks

        /// Returns whether the left result is better.
        package static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }
    }

    /// Creates the comparison of no packs.
    package init() {}

    /// Adds the comparison of further packs.
    package mutating func add(_ other: SpaceComparison) {
        needed += other.needed
        neededInodes += other.neededInodes
        if other.result > result {
            lacksInodesAlone = other.lacksInodesAlone
        } else if other.result == result {
            lacksInodesAlone = lacksInodesAlone && other.lacksInodesAlone
        }
        result = max(result, other.result)
    }
}

extension Plan {
    /// `true` if packs are refused because inodes are missing, and none because bytes are.
    fileprivate var lacksInodesAlone: Bool {
        lacksSpace
            && !entries.contains { entry in
                if case .refuse(.noSpace) = entry.decision { true } else { false }
            }
    }

    /// Refuses the packs that do not fit into the free space, after the packs before them, and returns the outcome of
    /// each of these.
    ///
    /// Evictions may have freed less than the plan expects: a process reads a generation, or the file system shares
    /// blocks between files.
    ///
    /// - Parameter freeSpace: The free space and inodes of the file system.
    /// - Returns: The outcomes.
    package mutating func refusePacks(
        beyond freeSpace: AvailableSpace
    ) -> [PackID: StagingOutcome] {
        var available = freeSpace
        var refused: [PackID: StagingOutcome] = [:]
        for index in entries.indices where !entries[index].isKept {
            guard case .stage = entries[index].decision else { continue }
            let usage = entries[index].usage
            guard let shortage = available.shortage(for: usage) else {
                available.take(usage)
                continue
            }
            entries[index].decision = .refuse(Plan.Refusal(shortage))
            refused[entries[index].pack.id] = .failed(StageError(shortage))
        }
        return refused
    }
}

extension Plan.Entry {
    /// The space and the inodes that staging the pack takes.
    var usage: FileSystemUsage { FileSystemUsage(bytes: space, inodes: inodes) }
}
