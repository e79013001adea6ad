public import StageContainer
import StageIndex
public import StageModel
import StageSystem
public import SystemPackage

extension Stager {
    /// Fetches one file of an indexed pack that is not staged: its frames and nothing else, verified as
    /// those of a pack are.
    ///
    /// The file stays in the container until the manifest offers the version no longer, and what is
    /// staged later takes it from there. Any number of processes may ask for it at once.
    ///
    /// - Returns: The path of the file.
    /// - Throws: ``StageError/unknownPack(_:)``, ``StageError/noSuchFile(_:in:)``, or why it could not be
    ///   fetched.
    public func fetchFile(
        _ path: ContentPath,
        of id: PackID,
        from manifest: AcceptedManifest,
        in container: Container,
        report: @escaping @Sendable (StagingEvent) -> Void = { _ in }
    ) async throws(StageError) -> FilePath {
        guard let pack = manifest.manifest[id] else { throw .unknownPack(id) }
        guard let reference = pack.index else {
            throw .index(reason: "the pack '\(id)' has none: it can be fetched as a whole only")
        }
        let work = IndexedWork(
            stager: self,
            manifest: manifest,
            container: container,
            pack: pack,
            reference: reference,
            report: report
        )
        return try await work.fetchFile(path)
    }
}

extension IndexedWork {
    /// Fetches one file into the directory of files of packs that are not staged.
    fileprivate func fetchFile(_ path: ContentPath) async throws(StageError) -> FilePath {
        let place = try await blocking { () throws(StageError) in
            try StageError.wrapping { () throws(ContainerError) in
                try container.partialContent(of: reference.contentDigest)
            }
        }
        let name = FilePath("content/\(path)")
        var figures = StagingFigures(transferred: .zero, reused: .zero, source: nil)
        let index = try await index(for: place, nil, &figures)
        guard
            let position = index.entries.firstIndex(where: {
                $0.path.text.utf8.elementsEqual(path.text.utf8)
            }),
            case .file = index.entries[position].kind
        else { throw .noSuchFile(path, in: pack.id) }
        let isThere = try await blocking { () throws(StageError) in
            // What is under its name was put there whole and verified.
            try Self.storing { () throws(FileError) in try place.status(name) != nil }
        }
        if isThere { return place.path.pushing(name) }
        let mark = FilePath.Component(stringLiteral: "part-\(UInt64.random(in: 0 ... .max))")
        var done = [Bool](repeating: true, count: index.entries.count)
        done[position] = false
        let wanted = done
        let scratch = try await blocking { () throws(StageError) in
            try Self.storing { () throws(FileError) in
                let scratch = try place.makeDirectory(FilePath(mark))
                try scratch.makeParents(of: FilePath(path.text))
                return scratch
            }
        }
        let tree = IndexedTree(index: index, content: scratch)
        let result: Result<Void, StageError>
        do throws(StageError) {
            _ = try await FrameFetch(work: self, tree: tree, done: wanted)
                .run(tree.frames(except: wanted))
            try await blocking { () throws(StageError) in
                try Self.storing { () throws(FileError) in
                    try tree.makeEmptyFile(position)
                    try place.makeParents(of: name)
                    try scratch.moveFile(FilePath(path.text), to: name, in: place)
                }
            }
            result = .success(())
        } catch {
            result = .failure(error)
        }
        // What cannot be removed now goes with the rest of the directory.
        await withBlockingThread { _ = try? place.removeTree(mark) }
        try result.get()
        return place.path.pushing(name)
    }
}

extension Directory {
    /// Makes the directories above `name`.
    fileprivate func makeParents(of name: FilePath) throws(FileError) {
        var made = FilePath()
        for component in name.removingLastComponent().components {
            made.append(component)
            try createDirectory(made)
        }
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
            throw FileError("rename", path.pushing(name), .noSuchFileOrDirectory)
        }
        try from.rename(last, to: newLast, in: to)
    }
}
