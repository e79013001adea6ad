public import StageContainer
import StageDigest
import StageIndex
public import StageModel
import StageSystem
public import SystemPackage

extension Stager {
    /// Fetches one file of an indexed pack that is not staged: its frames and nothing else, verified as
    /// those of a pack are.
    ///
    /// The file stays in the container until the manifest offers the version no longer, and what is
    /// staged later takes it from there. Any number of processes and tasks may ask for it at once: one
    /// fetches it, and the others wait. What was received when the task is cancelled or the process
    /// dies stays, and the next call goes on there. After a power cut the file is there whole or not
    /// at all.
    ///
    /// - Parameters:
    ///   - path: The file; links of the pack are followed.
    ///   - id: The pack.
    ///   - manifest: What offers it.
    ///   - container: Where the file goes.
    ///   - applicationVersion: What the pack's requirement is compared with; `nil` where nothing tells.
    ///   - report: Told what happens.
    /// - Returns: The path of the file.
    /// - Throws: ``StageError/unknownPack(_:)``, ``StageError/noSuchFile(_:_:)``, or why it could not be
    ///   fetched.
    public func fetchFile(
        _ path: ContentPath,
        of id: PackID,
        from manifest: AcceptedManifest,
        in container: Container,
        applicationVersion: String? = nil,
        report: @escaping @Sendable (StagingEvent) -> Void = { _ in }
    ) async throws(StageError) -> FilePath {
        guard let pack = manifest.manifest[id] else { throw .unknownPack(id) }
        if let installed = applicationVersion, let required = pack.applicationVersion,
            !required.isMet(by: installed)
        {
            throw .noSuchFile(
                path,
                .isForOtherVersion(required: required.text, installed: installed)
            )
        }
        guard let reference = pack.index else { throw .noSuchFile(path, .packHasNoIndex) }
        let work = PackWork(
            stager: self,
            manifest: manifest,
            container: container,
            pack: pack,
            sharing: ArchiveSharing(),
            report: report
        )
        return try await IndexSource(work: work, reference: reference).fetchFile(path)
    }
}

extension IndexSource {
    /// Fetches one file into the directory of files of packs that are not staged.
    fileprivate func fetchFile(_ path: ContentPath) async throws(StageError) -> FilePath {
        // Held to the end, so that nothing of it is removed meanwhile.
        let place = try await work.container.lock(report: work.report) {
            container throws(ContainerError) in
            try container.makePartialContent(of: reference.contentDigest)
        }
        let verified = try await index(for: place.directory)
        let index = verified.content
        guard let found = index.resolve(path) else { throw .noSuchFile(path, .isMissing) }
        guard case .file(let position) = found.place else {
            throw .noSuchFile(path, .isDirectory)
        }
        let isFetched = try await fetchFile(position, of: verified, into: place.directory)
        try await StageError.blocking { () throws(FileError) in
            var isChanged = isFetched
            for link in found.links {
                let isMade = try place.directory.makeLink(index.entries[link])
                isChanged = isChanged || isMade
            }
            // Names, the lease that readers look for, and the directories above them.
            if isChanged { try place.directory.synchronizeFileSystem() }
        }
        return place.content.pushing(FilePath(path.text))
    }

    /// The index, which one process fetches and the others take from the directory.
    private func index(for directory: Directory) async throws(StageError) -> VerifiedIndex {
        var figures = StagingFigures(transferred: .zero, reused: .zero, source: nil)
        let isHere = try await StageError.blocking { () throws(FileError) in
            try directory.status(FilePath(ContainerLayout.index)) != nil
        }
        if isHere { return try await index(for: directory, nil, &figures) }
        let lock = try await lock(for: "index")
        defer { lock.end() }
        return try await index(for: directory, nil, &figures)
    }

    /// The right to fetch something of this version.
    private func lock(for what: String) async throws(StageError) -> DownloadLock {
        let key = Digest(of: Array("\(reference.contentDigest) \(what)".utf8))
        let name = ContainerLayout.downloadName(ofFile: key)
        return try await work.container.downloadLock(name, report: work.report)
    }

    /// Fetches the file at a position of the index, and returns `false` if it was here.
    private func fetchFile(
        _ position: Int,
        of index: VerifiedIndex,
        into place: Directory
    ) async throws(StageError) -> Bool {
        let path = index.content.entries.path(at: position)
        let name = FilePath("\(ContainerLayout.content)/\(path)")
        let isThere = { @Sendable () throws(FileError) in
            // What is under its name was put there whole and verified.
            try place.status(name) != nil
        }
        if try await StageError.blocking(isThere) { return false }
        let lock = try await lock(for: "file \(path)")
        defer { lock.end() }
        if try await StageError.blocking(isThere) { return false }
        let mark = Self.mark(of: path)
        let (tree, local) = try await withBlockingThread { () throws(StageError) in
            try prepare(position, of: index, in: place, mark)
        }
        let missing = tree.frames(except: local.done).filter { !local.frames.contains($0) }
        _ = try await FrameFetch(source: self, tree: tree, done: local.done, deltas: nil)
            .run(missing)
        try await StageError.blocking { () throws(FileError) in
            try tree.makeEmptyFile(position)
            // On disk before it has its name, since a name is taken for a whole file.
            try tree.content.file(reading: FilePath(path.text))?.synchronize()
            try place.makeParents(of: name)
            try tree.content.moveFile(FilePath(path.text), to: name, in: place)
        }
        // What cannot be removed now goes with the rest of the directory.
        await withBlockingThread { _ = try? place.removeTree(mark) }
        return true
    }

    /// The name of what a file is in before it is whole: the same each time, so that it is continued.
    private static func mark(of path: ContentPath) -> FilePath.Component {
        let digest = Digest(of: Array(path.text.utf8))
        guard let mark = FilePath.Component("part-\(digest)") else {
            preconditionFailure("hexadecimal digits are a file name")
        }
        return mark
    }

    /// Makes a place for a file that fits, and finds out what an earlier run has left of it.
    private func prepare(
        _ position: Int,
        of verified: VerifiedIndex,
        in place: Directory,
        _ mark: FilePath.Component
    ) throws(StageError) -> (IndexedTree, IndexedTree.Inventory) {
        let index = verified.content
        let path = FilePath(index.entries.path(at: position).text)
        var done = [Bool](repeating: true, count: index.entries.count)
        done[position] = false
        let wanted = done
        if let file = index.entries.file(at: position) {
            let (status, free) = try StageError.wrapping { () throws(FileError) in
                (try place.status(FilePath(mark).pushing(path)), try place.freeSpace())
            }
            let missing = ByteCount(max(0, file.size - (status?.allocatedSize ?? 0)))
            guard missing + Planner.reserve <= ByteCount(free.bytes) else {
                let available = ByteCount(free.bytes)
                throw .noSpace(needed: missing + Planner.reserve, available: available)
            }
        }
        return try StageError.wrapping { () throws(FileError) in
            let isContinued = try place.status(FilePath(mark)) != nil
            let scratch = try place.makeDirectory(
                FilePath(mark),
                exactly: .ownerReadWriteExecute
            )
            if isContinued { try scratch.synchronizeFileSystem() }
            try scratch.makeParents(of: path)
            let tree = IndexedTree(verified, content: scratch)
            var cursor = DirectoryCursor(scratch)
            return (tree, try tree.inventory(except: wanted, &cursor))
        }
    }
}

extension Directory {
    /// Makes the directories above `name`, with the modes of a pack's.
    fileprivate func makeParents(of name: FilePath) throws(FileError) {
        var made = FilePath()
        for component in name.removingLastComponent().components {
            made.append(component)
            _ = try makeDirectory(made, exactly: .directory)
        }
    }

    /// Makes a link of a pack among its single files, and returns `false` if it is there.
    fileprivate func makeLink(_ entry: ContentIndex.Entry) throws(FileError) -> Bool {
        guard case .link(let target) = entry.kind else { return false }
        let name = FilePath("\(ContainerLayout.content)/\(entry.path)")
        guard try status(name) == nil else { return false }
        try makeParents(of: name)
        do throws(FileError) {
            try createLink(name, to: target.text)
        } catch {
            // Another process has made it, of the same index.
            guard error.errno == .fileExists else { throw error }
        }
        return true
    }

    /// Renames a file at a path below this directory to one below another.
    fileprivate func moveFile(
        _ name: FilePath,
        to target: FilePath,
        in directory: Directory
    ) throws(FileError) {
        guard let last = name.lastComponent, let newLast = target.lastComponent else { return }
        let (above, newAbove) = (name.removingLastComponent(), target.removingLastComponent())
        let from = above.isEmpty ? self : try self.directory(above)
        let to = newAbove.isEmpty ? directory : try directory.directory(newAbove)
        guard let from, let to else {
            throw FileError("rename", path: path.pushing(name), errno: .noSuchFileOrDirectory)
        }
        try from.rename(last, to: newLast, in: to)
    }
}
