package import StageContainer
import StageIndex
public import StageModel

extension Planner {
    /// The space to leave free on the file system beyond the planned use.
    public static let reserve = ByteCount.mebibytes(16)

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
            let bound = max(.zero, content - (unfinished[pack.id] ?? .zero))
            guard let measured = spaceByIndex[pack.id] else { return bound }
            let unstated = pack.directoryCount == nil ? measured.directories : .zero
            return min(bound + unstated, measured.total)
        }
        return max(.zero, pack.downloadSize - (downloaded[pack.contentDigest] ?? .zero)) + content
    }

    /// Returns the indexed packs whose indexes may show that the packs of a selection fit on the file system; none if all
    /// fit without evictions.
    ///
    /// Omits small packs, which change little.
    package func packsToMeasure(for selection: PackSelection) -> [Pack] {
        guard manifest.packs.contains(where: { $0.index != nil }) else { return [] }
        let most = manifest.packs.reduce(ByteCount.zero) { $0 + space(for: $1) }
        guard AvailableSpace(freeSpace).shortage(for: most) != nil else { return [] }
        var planner = self
        planner.evictionPolicy = nil
        planner.quota = nil
        let plan = planner.plan(for: selection)
        guard plan.lacksSpace else { return [] }
        return plan.entries.filter { entry in
            guard entry.pack.index != nil, !entry.isKept, spaceByIndex[entry.pack.id] == nil,
                space(for: entry.pack) >= .mebibytes(1)
            else { return false }
            return switch entry.decision {
            case .stage, .refuse(.noSpace): true
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
            case .stage: comparison.needed += entry.space
            case .refuse(.noSpace): comparison.needed += space(for: entry.pack)
            case .skip, .refuse, .evict: break
            }
        }
        guard plan.lacksSpace else { return comparison }
        var planner = assumingLeastSpace(for: selection)
        let least = try planner.plan(for: selection, in: reader)
        comparison.result = least.lacksSpace ? .lacks : .mayFit
        return comparison
    }

    /// Returns the planner with the least space that the packs may need by their indexes, which a run would read.
    ///
    /// Links need no block, and files of the staged generation none at all.
    func assumingLeastSpace(for selection: PackSelection) -> Planner {
        var planner = self
        for pack in packsToMeasure(for: selection) {
            let files = staged[pack.id] == nil ? pack.installedSize : .zero
            let directories = ContentIndex.space(ofDirectories: pack.directoryCount ?? 0)
            planner.spaceByIndex[pack.id] = SpaceByIndex(
                total: max(.zero, files + directories - (unfinished[pack.id] ?? .zero)),
                directories: .zero
            )
        }
        return planner
    }
}

/// The space that packs need on the file system, compared with the space that a run would find there.
package struct SpaceComparison: Equatable, Sendable {
    /// The maximum space that the packs need, without ``Planner/reserve``.
    package var needed = ByteCount.zero
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
        result = max(result, other.result)
    }
}

extension Plan {
    /// Refuses the packs that do not fit into the free space, after the packs before them, and returns the outcome of
    /// each of these.
    ///
    /// Evictions may have freed less than the plan expects: a process reads a generation, or the file system shares
    /// blocks between files.
    ///
    /// - Parameter freeSpace: The free space of the file system.
    /// - Returns: The outcomes.
    package mutating func refusePacks(beyond freeSpace: ByteCount) -> [PackID: StagingOutcome] {
        var available = AvailableSpace(freeSpace)
        var refused: [PackID: StagingOutcome] = [:]
        for index in entries.indices where !entries[index].isKept {
            guard case .stage = entries[index].decision else { continue }
            guard let shortage = available.shortage(for: entries[index].space) else {
                available.take(entries[index].space)
                continue
            }
            entries[index].decision = .refuse(Plan.Refusal(shortage))
            refused[entries[index].pack.id] = .failed(StageError(shortage))
        }
        return refused
    }
}
