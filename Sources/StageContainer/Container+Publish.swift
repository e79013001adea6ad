import StageModel
import StageSystem
import SystemPackage

extension Container {
    /// Publishes staged packs, each atomically, after their content is on disk.
    ///
    /// Most of the cost is waiting for the disk, so packs that are ready together are published together: one
    /// sync of the file system serves all of them. A pack that fails does not prevent the others from being
    /// published. After an error or a crash, each pack has either its complete old generation or its complete
    /// new one. A pack that fails keeps its area, for the owner to discard or continue; after a crash `gc`
    /// removes leftovers.
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
            let (area, record) = (pack.area, pack.record)
            let target = try ContainerError.wrapping { () throws(FileError) in
                try makeTarget(for: record)
            }
            pack.target = target
            try ContainerError.wrapping { () throws(FileError) in
                let name = target.generation.component
                try staging.rename(area.name, toUnused: name, in: target.directory)
            }
            pack.isMoved = true
            // Only after the rename: `gc` removes areas in `staging/` that are not locked.
            try ContainerError.wrapping { () throws(FileError) in try area.open() }
        }
        publication.finishStep { () throws(FileError) in try root.synchronizeFileSystem() }
        publication.step { pack throws(ContainerError) in
            guard let target = pack.target else { return }
            let id = pack.area.id
            try ContainerError.wrapping { () throws(FileError) in
                try removingCopy(of: id) { () throws(FileError) in
                    try self.packs.rename(target.link, over: id.component)
                }
            }
            pack.isLinked = true
        }
        for pack in publication.withoutLinks { withdraw(pack) }
        publication.finishStep { () throws(FileError) in try self.packs.synchronize() }
        return publication.results
    }

    /// Returns the record with the name of the generation that the new one replaces, for rollbacks.
    func recordWithPrevious(_ record: StagedPack) throws(ContainerError) -> StagedPack {
        var record = record
        guard let current = try reader.currentGeneration(of: record.id) else { return record }
        // A repair keeps the predecessor of the damaged generation.
        record.replaced =
            current.content.map { $0 == (record.version, record.contentDigest) } ?? false
            ? try reader.intactRecord(of: current, record.id)?.replaced : current.description
        return record
    }

    /// Chooses an unused name in `generations/`, and creates a temporary link to it, so that a link that cannot be created
    /// is found before anything is moved.
    private func makeTarget(for record: StagedPack) throws(FileError) -> Publication.Target {
        let id = record.id
        let directory = try generations.makeDirectory(
            FilePath(id.component),
            exactly: .directory
        )
        func name(_ attempt: Int) -> GenerationName {
            GenerationName(
                version: record.version,
                digest: record.contentDigest,
                attempt: attempt
            )
        }
        // The lock on the pack keeps other processes from taking the name.
        var attempt = 1
        while try directory.status(FilePath(name(attempt).component)) != nil { attempt += 1 }
        let generation = name(attempt)
        let link = packs.temporaryName(for: id.component)
        let target = ContainerLayout.linkTarget(of: id, to: generation)
        try packs.createLink(link, for: id.component, to: target)
        return Publication.Target(generation: generation, directory: directory, link: link)
    }

    /// Changes the link of a pack; if the pack has a directory instead of the link, removes it, and tries again.
    ///
    /// A copy of a container that followed links has such directories, and no rename replaces one. Readers find no pack until
    /// the second attempt.
    func removingCopy(
        of id: PackID,
        _ change: () throws(FileError) -> Void
    ) throws(FileError) {
        do throws(FileError) {
            try change()
        } catch {
            guard error.errno == .isDirectory else { throw error }
            try removeCopy(of: id)
            try change()
        }
    }

    private func removeCopy(of id: PackID) throws(FileError) {
        let trash = try makeUniqueName(id.text)
        do throws(FileError) {
            try packs.rename(id.component, toUnused: trash, in: staging)
        } catch {
            // On overlayfs a directory of a lower layer cannot be renamed.
            guard error.errno == .improperLink else { throw error }
            try packs.removeTree(id.component)
            return
        }
        // `gc` removes what stays.
        _ = try? staging.removeTree(trash)
    }

    /// Moves a generation that did not get its link back to `staging/`, and removes its temporary link.
    ///
    /// Errors are ignored, since the one that prevented the link is the one to report: `gc` removes what stays.
    private func withdraw(_ pack: Publication.Entry) {
        guard let target = pack.target else { return }
        try? packs.removeFile(target.link)
        guard pack.isMoved else { return }
        try? pack.area.close()
        let name = target.generation.component
        try? target.directory.rename(name, toUnused: pack.area.name, in: staging)
    }
}

/// Packs that are published together, with the error of each that failed.
private struct Publication {
    /// A pack and its progress.
    struct Entry {
        let area: StagingArea
        let record: StagedPack
        /// The name that the area gets; `nil` before it is chosen.
        var target: Target?
        /// `true` once the area has that name.
        var isMoved = false
        /// `true` once the link names the generation.
        var isLinked = false
    }

    /// The name of a generation, and a temporary link to it.
    struct Target {
        let generation: GenerationName
        /// The directory of the pack's generations.
        let directory: Directory
        let link: FilePath
    }

    private var packs: [(entry: Entry, failure: ContainerError?)]

    init(_ packs: [(area: StagingArea, record: StagedPack)]) {
        self.packs = packs.map { (Entry(area: $0.area, record: $0.record), nil) }
    }

    var results: [Result<Void, ContainerError>] {
        packs.map { $0.failure.map(Result.failure) ?? .success(()) }
    }

    /// The packs that have failed before their links named them.
    var withoutLinks: [Entry] {
        packs.compactMap { $0.failure == nil || $0.entry.isLinked ? nil : $0.entry }
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
