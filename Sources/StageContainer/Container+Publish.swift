import StageModel
import StageSystem
import SystemPackage

extension Container {
    /// Publishes staged packs, each atomically, after their content is on disk.
    ///
    /// Most of the cost is waiting for the disk, so packs that are ready together are published together: one
    /// sync of the file system serves all of them. On return, all are durable. After an error or a crash, each
    /// pack has either its complete old generation or its complete new one; a later sweep removes leftovers.
    ///
    /// The caller holds the locks of all the packs.
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
                generations.append((area.id, try moveIntoGenerations(area, as: record)))
            }
            try root.synchronizeFileSystem()
            for (id, generation) in generations {
                try self.packs.replaceLink(
                    id.component,
                    to: ContainerLayout.linkTarget(of: id, to: generation)
                )
            }
            try self.packs.synchronize()
        }
    }

    /// Returns the record with the name of the generation that the new one replaces, for rollbacks.
    private func recordWithPrevious(_ record: StagedPack) throws(ContainerError) -> StagedPack {
        var record = record
        guard let current = try reader.currentGeneration(of: record.id) else { return record }
        // A repair keeps the predecessor of the damaged generation.
        record.replaced =
            current.content.map { $0 == (record.version, record.contentDigest) } ?? false
            ? try reader.wholeRecord(of: current, record.id)?.replaced : current.description
        return record
    }

    /// Moves the area to a unique name in `generations/`, which no link refers to yet.
    private func moveIntoGenerations(
        _ area: StagingArea,
        as record: StagedPack
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
                // Only after the rename: a sweep removes areas in `staging/` that are not locked.
                try area.open()
                return name
            } catch {
                guard error.errno == .fileExists else { throw error }
                attempt += 1
            }
        }
    }
}
