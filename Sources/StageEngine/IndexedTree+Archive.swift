import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

extension IndexedTree {
    /// Moves those files of an unpacked archive that match the index to their places; returns `nil` if stopped
    /// early.
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
                let place = Self.place(
                    of: path,
                    file,
                    in: &source,
                    isVerified: areVerified,
                    using: &buffer
                ),
                let name = place.name.lastComponent
            else { continue }
            let (directory, _) = try target.existingPlace(of: path.text)
            try place.directory.rename(name, to: name, in: directory)
            done[position] = true
        }
        return done
    }

    /// Returns the place of an unpacked file after setting its mode, or `nil` unless its content matches the
    /// index.
    private static func place(
        of path: ContentPath,
        _ file: ContentIndex.File,
        in source: inout DirectoryCursor,
        isVerified: Bool,
        using buffer: inout [UInt8]
    ) -> (directory: Directory, name: FilePath)? {
        do throws(FileError) {
            guard let place = try source.place(of: path.text),
                let made = try place.directory.file(reading: place.name),
                try made.status().size == file.size
            else { return nil }
            if !isVerified, try Digest(of: made, size: file.size, using: &buffer) != file.digest {
                return nil
            }
            try made.ensureMode(file.mode)
            return place
        } catch {
            // An entry of another kind or an unreadable file is fetched from another source.
            return nil
        }
    }
}
