import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

extension IndexedTree {
    /// Moves files of an unpacked archive to where they belong, as far as they hold what the index names;
    /// `nil` if it was stopped before the end.
    ///
    /// What an earlier run began of them is replaced as a whole. Links and directories are the index's.
    ///
    /// - Parameters:
    ///   - unpacked: What the archive was unpacked to.
    ///   - done: The entries that are complete, by position.
    ///   - others: The entries that come from elsewhere.
    ///   - isStopped: Asked after each file.
    /// - Returns: The entries that are complete then.
    /// - Throws: ``FileError`` if the content cannot be written.
    func moveFiles(
        from unpacked: Directory,
        to done: [Bool],
        except others: [Bool],
        unless isStopped: () -> Bool
    ) throws(FileError) -> [Bool]? {
        var done = done
        var source = DirectoryCursor(unpacked)
        var target = DirectoryCursor(content)
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        for (position, file) in index.files where !done[position] && !others[position] {
            if isStopped() { return nil }
            let path = index.entries.path(at: position)
            guard let place = Self.place(of: path, file, in: &source, using: &buffer),
                let name = place.name.lastComponent
            else { continue }
            let (directory, _) = try target.existingPlace(of: path.text)
            try place.directory.rename(name, to: name, in: directory)
            done[position] = true
        }
        return done
    }

    /// Finds a file that an archive was unpacked to, and gives it its mode; `nil` unless it holds what the index
    /// names.
    private static func place(
        of path: ContentPath,
        _ file: ContentIndex.File,
        in source: inout DirectoryCursor,
        using buffer: inout [UInt8]
    ) -> (directory: Directory, name: FilePath)? {
        do throws(FileError) {
            guard let place = try source.place(of: path.text),
                let made = try place.directory.file(reading: place.name),
                try made.status().size == file.size,
                try Digest(of: made, size: file.size, using: &buffer) == file.digest
            else { return nil }
            try made.ensureMode(file.mode)
            return place
        } catch {
            // What is of another kind, or cannot be read, comes from elsewhere.
            return nil
        }
    }
}
