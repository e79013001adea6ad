public import StageContainer
import StageDigest
import StageIndex
public import StageModel
import StageSystem
public import SystemPackage

extension Stager {
    /// Downloads one file of an indexed pack that is not staged: only its frames, verified as for a whole
    /// pack.
    ///
    /// The file stays in the container until the manifest no longer offers the version; staging the pack later
    /// reuses it. Processes and tasks may request it concurrently: one downloads it, and the others wait.
    /// After a cancellation or a crash, the next call resumes the download. After a power failure, the file is
    /// either complete or absent.
    ///
    /// - Parameters:
    ///   - path: The path of the file; links of the pack are followed.
    ///   - id: The pack.
    ///   - manifest: The manifest that offers the pack.
    ///   - container: The container to store the file in.
    ///   - applicationVersion: The installed version, compared with the pack's requirement; `nil` if unknown.
    ///   - report: Receives events of the download.
    /// - Returns: The path of the file.
    /// - Throws: ``StageError/unknownPack(_:)``, ``StageError/noSuchFile(_:_:)``, or the error of the
    ///   download.
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
            reservations: SpaceReservations(.unknown, for: []),
            report: report
        )
        return try await IndexSource(work: work, reference: reference).fetchFile(path)
    }
}

extension IndexSource {
    /// Downloads one file into the directory for individual files of unstaged packs.
    fileprivate func fetchFile(_ path: ContentPath) async throws(StageError) -> FilePath {
        // Held until the end, so that no other process removes the directory meanwhile.
        let partial = try await work.container.partialContent(
            of: reference.contentDigest,
            report: work.report
        )
        let verified = try await index(for: partial.directory)
        let index = verified.content
        guard let found = index.resolve(path) else { throw .noSuchFile(path, .isMissing) }
        guard case .file(let position) = found.item else {
            throw .noSuchFile(path, .isDirectory)
        }
        let isFetched = try await fetchFile(position, of: verified, into: partial.directory)
        try await StageError.blocking { () throws(FileError) in
            var isChanged = isFetched
            for link in found.links {
                let isMade = try partial.directory.makeLink(index.entries[link])
                isChanged = isChanged || isMade
            }
            // Syncs the names, the lease that readers look for, and the parent directories as well.
            if isChanged { try partial.directory.synchronizeFileSystem() }
        }
        return partial.content.pushing(FilePath(path.text))
    }

    /// Returns the index: one process fetches it, and the others read it from the directory.
    private func index(for directory: Directory) async throws(StageError) -> VerifiedIndex {
        var figures = StagingFigures(transferred: .zero, reused: .zero, source: nil)
        let isHere = try await StageError.blocking { () throws(FileError) in
            try directory.status(FilePath(ContainerLayout.index)) != nil
        }
        if isHere { return try await index(for: directory, base: nil, countingIn: &figures) }
        let lock = try await lock(for: "index")
        defer { lock.end() }
        return try await index(for: directory, base: nil, countingIn: &figures)
    }

    /// Acquires the lock for downloading a part of this version: its index, or one file.
    private func lock(for part: String) async throws(StageError) -> DownloadLock {
        let key = Digest(of: Array("\(reference.contentDigest) \(part)".utf8))
        let name = ContainerLayout.downloadName(ofFile: key)
        return try await work.container.downloadLock(name, report: work.report)
    }

    /// Downloads the file at a position of the index; returns `false` if it existed.
    private func fetchFile(
        _ position: Int,
        of index: VerifiedIndex,
        into directory: Directory
    ) async throws(StageError) -> Bool {
        let path = index.content.entries.path(at: position)
        let name = FilePath("\(ContainerLayout.content)/\(path)")
        let isThere = { @Sendable () throws(FileError) in
            // A file gets this name only when it is complete and verified.
            try directory.status(name) != nil
        }
        if try await StageError.blocking(isThere) { return false }
        let lock = try await lock(for: "file \(path)")
        defer { lock.end() }
        if try await StageError.blocking(isThere) { return false }
        let partialName = Self.partialDirectoryName(for: path)
        let (tree, local) = try await withBlockingThread { () throws(StageError) in
            try prepare(position, of: index, in: directory, partialName: partialName)
        }
        let missing = tree.frames(except: local.done).filter { !local.frames.contains($0) }
        _ = try await FrameDownloader(source: self, tree: tree, done: local.done, deltas: nil)
            .run(missing)
        try await StageError.blocking { () throws(FileError) in
            try tree.makeEmptyFile(position)
            // Synced before the rename, since the final name means that the file is complete.
            try tree.content.file(reading: FilePath(path.text))?.synchronize()
            try directory.makeParents(of: name)
            try tree.content.moveFile(FilePath(path.text), to: name, in: directory)
        }
        // A directory that cannot be removed now is removed with its parent.
        await withBlockingThread { _ = try? directory.removeTree(partialName) }
        return true
    }

    /// Returns the name of the directory for an incomplete file: the same for each run, so that a run can
    /// resume.
    private static func partialDirectoryName(for path: ContentPath) -> FilePath.Component {
        FilePath.Component(known: "part-\(Digest(of: Array(path.text.utf8)))")
    }

    /// Creates the directory for an incomplete file after checking the free space, and finds what an earlier
    /// run left.
    private func prepare(
        _ position: Int,
        of verified: VerifiedIndex,
        in directory: Directory,
        partialName: FilePath.Component
    ) throws(StageError) -> (IndexedTree, IndexedTree.Inventory) {
        let index = verified.content
        let path = FilePath(index.entries.path(at: position).text)
        var done = [Bool](repeating: true, count: index.entries.count)
        done[position] = false
        let wanted = done
        if let file = index.entries.file(at: position) {
            let (status, free) = try StageError.wrapping { () throws(FileError) in
                (
                    try directory.status(FilePath(partialName).pushing(path)),
                    try directory.freeSpace()
                )
            }
            let missing = ByteCount(max(0, file.size - (status?.allocatedSize ?? 0)))
            // The parent directories are created beside the incomplete file, and again for the complete one.
            let inodes = status == nil ? 2 * path.components.count : 0
            let usage = FileSystemUsage(bytes: missing, inodes: inodes)
            if let shortage = AvailableSpace(free).shortage(for: usage) {
                throw StageError(shortage)
            }
        }
        return try StageError.wrapping { () throws(FileError) in
            let isContinued = try directory.status(FilePath(partialName)) != nil
            let scratch = try directory.makeDirectory(
                FilePath(partialName),
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
    /// Creates the parent directories of `name`, with the mode of directories in packs.
    fileprivate func makeParents(of name: FilePath) throws(FileError) {
        var made = FilePath()
        for component in name.removingLastComponent().components {
            made.append(component)
            _ = try makeDirectory(made, exactly: .directory)
        }
    }

    /// Creates a link of a pack among the individual files; returns `false` if it exists.
    fileprivate func makeLink(_ entry: ContentIndex.Entry) throws(FileError) -> Bool {
        guard case .link(let target) = entry.kind else { return false }
        let name = FilePath("\(ContainerLayout.content)/\(entry.path)")
        guard try status(name) == nil else { return false }
        try makeParents(of: name)
        do throws(FileError) {
            try createLink(name, to: target.text)
        } catch {
            // Another process has created it, from the same index.
            guard error.errno == .fileExists else { throw error }
        }
        return true
    }

    /// Moves a file from a path below this directory to one below another.
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
