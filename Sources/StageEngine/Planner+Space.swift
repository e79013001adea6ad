import StageContainer
public import StageModel

extension Planner {
    /// The space to leave free on the file system beyond the planned use.
    public static let reserve = ByteCount.mebibytes(16)

    /// Returns the peak space needed to stage the pack: the rest of the archive, the files, and the overhead
    /// of the file system for each of them, without the files of an indexed pack that an interrupted run left.
    ///
    /// Does not include files of an indexed pack that the staged generation has, either, if the index was read.
    ///
    /// Does not include the current generation, which is counted as used space.
    public func space(for pack: Pack) -> ByteCount {
        let files = StoredGeneration.size(pack.installedSize, fileCount: pack.fileCount)
        // An indexed pack needs space for its files only: its archive is used only if there is space for it
        // too.
        guard pack.index == nil else {
            let bound = max(.zero, files - (unfinished[pack.id] ?? .zero))
            return min(bound, spaceByIndex[pack.id] ?? bound)
        }
        return max(.zero, pack.downloadSize - (downloaded[pack.contentDigest] ?? .zero)) + files
    }

    /// Returns the indexed packs whose indexes may show that the packs of a selection fit on the file system; none if all
    /// fit without evictions.
    ///
    /// Omits small packs, which change little.
    package func packsToMeasure(for selection: PackSelection) -> [Pack] {
        guard let freeSpace, manifest.packs.contains(where: { $0.index != nil }),
            manifest.packs.reduce(Self.reserve, { $0 + space(for: $1) }) > freeSpace
        else { return [] }
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

    /// Returns whether a download and the content made of it fit, with the reserve; `true` if the free space is
    /// unknown.
    static func hasSpace(
        for download: ByteCount,
        and content: ByteCount,
        in freeSpace: ByteCount?
    ) -> Bool {
        freeSpace.map { download + content + reserve <= $0 } ?? true
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
        var free = freeSpace
        var refused: [PackID: StagingOutcome] = [:]
        for index in entries.indices where !entries[index].isKept {
            guard case .stage = entries[index].decision else { continue }
            let space = entries[index].space
            let needed = space + Planner.reserve
            guard needed > free else {
                free -= space
                continue
            }
            entries[index].decision = .refuse(.noSpace(needed: needed, available: free))
            refused[entries[index].pack.id] = .failed(.noSpace(needed: needed, available: free))
        }
        return refused
    }
}
