import StageDigest
import StageModel
import StageSystem
import SystemPackage

/// A directory of a store, whose objects are named by their digests.
///
/// Existing objects are not rewritten: servers and caches take a new modification time for a new version, and
/// tools that synchronize to a server upload the object again.
struct StoreObjects {
    let directory: Directory

    /// Renames a complete and synced temporary file, or removes it if that object exists; `name` defaults to the
    /// digest.
    func publish(
        _ temporary: FilePath.Component,
        digest: Digest,
        as name: FilePath.Component? = nil
    ) throws(FileError) {
        let name = name ?? FilePath.Component(stringLiteral: digest.description)
        if try holds(digest, at: name) {
            try directory.remove(temporary)
        } else {
            try directory.rename(FilePath(temporary), over: name)
        }
    }

    /// Writes an object of a kind to a temporary file, which it removes after an error, and publishes it durably.
    ///
    /// - Parameters:
    ///   - kind: The kind, from whose temporary names one is taken.
    ///   - name: Returns the name for a digest; `nil` names the object by its digest.
    ///   - write: Writes the content, and returns its digest.
    /// - Returns: The digest.
    /// - Throws: ``FileError`` if the object cannot be written, and the errors of `write`.
    func create(
        _ kind: StoreObjectKind,
        named name: (Digest) -> FilePath.Component? = { _ in nil },
        write: (borrowing File) throws(FileError) -> Digest
    ) throws(FileError) -> Digest {
        let temporary = kind.makeName()
        let file = try directory.file(creating: FilePath(temporary), for: nil)
        do throws(FileError) {
            let digest = try write(file)
            try file.synchronize()
            try publish(temporary, digest: digest, as: name(digest))
            try directory.synchronize()
            return digest
        } catch {
            // The first error is the one to report.
            _ = try? directory.remove(temporary)
            throw error
        }
    }

    /// Writes an object unless it exists; `name` defaults to the digest.
    func write(
        _ bytes: [UInt8],
        digest: Digest,
        named name: FilePath.Component? = nil
    ) throws(FileError) {
        let name = name ?? FilePath.Component(stringLiteral: digest.description)
        if try holds(digest, at: name) {
            // A killed run may have renamed it without syncing the directory.
            try directory.synchronize()
        } else {
            try directory.write(bytes, to: name, durably: true)
        }
    }

    /// Reads an object whose name is not the digest of its bytes; `nil` if it is missing or too large.
    func bytes(of name: FilePath.Component, limit: Int) throws(FileError) -> [UInt8]? {
        guard try directory.status(FilePath(name))?.kind == .file,
            let file = try directory.file(reading: FilePath(name)),
            try file.status().size <= limit
        else { return nil }
        return try file.readAll(limit: limit)
    }

    /// Returns whether an undamaged object exists.
    private func holds(_ digest: Digest, at name: FilePath.Component) throws(FileError) -> Bool {
        guard try directory.status(FilePath(name))?.kind == .file,
            let file = try directory.file(reading: FilePath(name))
        else { return false }
        return try Digest(of: file) == digest
    }
}
