import StageModel
import StageSystem
import SystemPackage

extension Container {
    /// Publishes staged packs, each atomically, after their content is on disk.
    ///
    /// Most of the cost is waiting for the disk, so packs that are ready together are published together: one
    /// sync of the file system serves all of them. A pack that fails does not prevent the others from being
    /// published. After an error or a crash, each pack has either its complete old generation or its complete
    /// new one; a later sweep removes leftovers.
    ///
    /// The caller holds the locks of all the packs.
    ///
    /// - Returns: The result for each pack, in order; the packs without an error are durable.
    public func publish(
        _ packs: [(area: StagingArea, record: StagedPack)]
    ) -> [Result<Void, ContainerError>] {
        var publication = Publication(packs)
        publication.step { pack throws(ContainerError) in
            try JSONRecord.write(
                try recordWithPrevious(pack.record).json,
                to: ContainerLayout.packRecord,
                in: pack.area.directory,
                durably: false
            )
            try ContainerError.wrapping { () throws(FileError) in
                try pack.area.settleForReaders()
            }
        }
        publication.finishStep { () throws(FileError) in try root.synchronizeFileSystem() }
        publication.step { pack throws(ContainerError) in
            pack.generation = try ContainerError.wrapping { () throws(FileError) in
                try moveIntoGenerations(pack.area, as: pack.record)
            }
        }
        publication.finishStep { () throws(FileError) in try root.synchronizeFileSystem() }
        publication.step { pack throws(ContainerError) in
            guard let generation = pack.generation else { return }
            let id = pack.area.id
            try ContainerError.wrapping { () throws(FileError) in
                try self.packs.replaceLink(
                    id.component,
                    to: ContainerLayout.linkTarget(of: id, to: generation)
                )
            }
        }
        publication.finishStep { () throws(FileError) in try self.packs.synchronize() }
        return publication.results
    }

    /// Returns the record with the name of the generation that the new one replaces, for rollbacks.
    private func recordWithPrevious(_ record: StagedPack) throws(ContainerError) -> StagedPack {
        var record = record
        guard let current = try reader.currentGeneration(of: record.id) else { return record }
        // A repair keeps the predecessor of the damaged generation.
        record.replaced =
            current.content.map { $0 == (record.version, record.contentDigest) } ?? false
            ? try reader.intactRecord(of: current, record.id)?.replaced : current.description
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
                try staging.rename(area.name, toUnused: name.component, in: directory)
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

/// Packs that are published together, with the error of each that failed.
private struct Publication {
    /// A pack and its progress.
    struct Entry {
        let area: StagingArea
        let record: StagedPack
        /// The generation that the area became; `nil` before.
        var generation: GenerationName?
    }

    private var packs: [(entry: Entry, failure: ContainerError?)]

    init(_ packs: [(area: StagingArea, record: StagedPack)]) {
        self.packs = packs.map { (Entry(area: $0.area, record: $0.record), nil) }
    }

    var results: [Result<Void, ContainerError>] {
        packs.map { $0.failure.map(Result.failure) ?? .success(()) }
    }

    /// Performs a step for each pack that has not failed.
    mutating func step(_ body: (inout Entry) throws(ContainerError) -> Void) {
        for index in packs.indices where packs[index].failure == nil {
            do throws(ContainerError) {
                try body(&packs[index].entry)
            } catch {
                packs[index].failure = error
            }
        }
    }

    /// Performs the end of a step once for all packs that have not failed; if it fails, all of them fail.
    mutating func finishStep(_ body: () throws(FileError) -> Void) {
        guard packs.contains(where: { $0.failure == nil }) else { return }
        do throws(FileError) {
            try body()
        } catch {
            for index in packs.indices where packs[index].failure == nil {
                packs[index].failure = .file(error)
            }
        }
    }
}
