import StageModel
import StageSystem
import SystemPackage

extension Container {
    /// Makes staged packs visible, each in one step, after everything they consist of is on disk.
    ///
    /// Packs that end together are published together, because most of the cost is waiting for the
    /// disk: the file system is synchronized once for all of them. When the call returns, all are
    /// durable. When it throws or the machine dies in between, each pack has its old generation or
    /// its new one, whole; ``sweep()`` removes what is left over.
    ///
    /// The locks of all the packs must be held.
    public func publish(
        _ packs: [(area: StagingArea, record: StagedPack)]
    ) throws(ContainerError) {
        for (area, record) in packs {
            try JSONRecord.write(
                try recordWithPrevious(record).json,
                to: ContainerLayout.packRecord,
                in: area.directory,
                durably: false
            )
        }
        try ContainerError.wrapping { () throws(FileError) in
            for (area, _) in packs { try area.settleForReaders() }
            try root.synchronizeFileSystem()
            var generations: [(PackID, GenerationName)] = []
            for (area, record) in packs {
                generations.append((area.id, try moveIntoGenerations(area, record)))
            }
            try root.synchronizeFileSystem()
            for (id, generation) in generations {
                try self.packs.replaceLink(
                    id.component,
                    to: ContainerLayout.linkTarget(id, generation)
                )
            }
            try self.packs.synchronize()
        }
    }

    /// The record with the generation that the new one replaces, so that a rollback knows it.
    private func recordWithPrevious(_ record: StagedPack) throws(ContainerError) -> StagedPack {
        var record = record
        guard let current = try reader.currentGeneration(of: record.id) else { return record }
        // What replaces damaged content replaces what that had replaced.
        record.replaced =
            current.content.map { $0 == (record.version, record.contentDigest) } ?? false
            ? try reader.wholeRecord(of: current, record.id)?.replaced : current.description
        return record
    }

    /// Moves the area to a name of its own below `generations/`, which no link names yet.
    private func moveIntoGenerations(
        _ area: StagingArea,
        _ record: StagedPack
    ) throws(FileError) -> GenerationName {
        let directory = try generations.makeDirectory(
            FilePath(area.id.component),
            exactly: .directory
        )
        var attempt = 1
        while true {
            let name = GenerationName(
                version: record.version,
                digest: record.contentDigest,
                attempt: attempt
            )
            do throws(FileError) {
                try staging.rename(area.name, to: name.component, in: directory, replacing: false)
                // Not before: a sweep takes an area that nobody has locked for a dead process's.
                try area.open()
                return name
            } catch {
                guard error.errno == .fileExists else { throw error }
                attempt += 1
            }
        }
    }
}
