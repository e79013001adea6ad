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
            try directory.rename(temporary, to: name, in: directory)
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
