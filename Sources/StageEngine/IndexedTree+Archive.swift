import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

extension IndexedTree {
    /// Moves those files of an unpacked archive that match the index into the tree; returns `nil` if stopped early.
    ///
    /// Replaces partial files of an earlier run. Links and directories are not moved: they are made from the
    /// index.
    ///
    /// - Parameters:
    ///   - unpacked: The directory that the archive was unpacked to.
    ///   - done: The complete entries, by position.
    ///   - others: The entries that come from another source.
    ///   - areVerified: `true` if all files were compared with the index: they are not read again.
    ///   - isStopped: Called before each file; `true` stops.
    /// - Returns: The complete entries after moving.
    /// - Throws: ``FileError`` if the content cannot be written.
    func moveFiles(
        from unpacked: Directory,
        to done: [Bool],
        except others: [Bool],
        areVerified: Bool,
        unless isStopped: () -> Bool
    ) throws(FileError) -> [Bool]? {
        var done = done
        var source = DirectoryCursor(unpacked)
        var target = DirectoryCursor(content)
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        for (position, file) in index.files where !done[position] && !others[position] {
            if isStopped() { return nil }
            let path = index.entries.path(at: position)
            guard
                let found = Self.location(
                    of: path,
                    file,
                    in: &source,
                    isVerified: areVerified,
                    using: &buffer
                ),
                let name = found.name.lastComponent
            else { continue }
            let (directory, _) = try target.existingLocation(of: path.text)
            try found.directory.rename(name, to: name, in: directory)
            done[position] = true
        }
        return done
    }

    /// Returns the location of an unpacked file after setting its mode, or `nil` unless its content matches the
    /// index.
    private static func location(
        of path: ContentPath,
        _ file: ContentIndex.File,
        in source: inout DirectoryCursor,
        isVerified: Bool,
        using buffer: inout [UInt8]
    ) -> (directory: Directory, name: FilePath)? {
        do throws(FileError) {
            guard let found = try source.location(of: path.text),
                let made = try found.directory.file(reading: found.name),
                try made.status().size == file.size
            else { return nil }
            if !isVerified, try Digest(of: made, size: file.size, using: &buffer) != file.digest {
                return nil
            }
            try made.ensureMode(file.mode)
            return found
        } catch {
            // An entry of another kind or an unreadable file is fetched from another source.
            return nil
        }
    }
}
