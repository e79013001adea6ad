import StageDigest
import StageModel
import StageSystem
import SystemPackage

/// A folder of a store, whose objects are named by what they hold.
///
/// An object that is there is left alone: servers and caches take its time of change for another version of it,
/// and synchronization to a server sends it again.
struct StoreObjects {
    let directory: Directory

    /// Gives a draft that is whole and on disk the name of its digest, or removes it where that object is there.
    func publish(_ draft: FilePath.Component, digest: Digest) throws(FileError) {
        let name = FilePath.Component(stringLiteral: digest.description)
        if try holds(digest, at: name) {
            try directory.remove(draft)
        } else {
            try directory.rename(draft, to: name, in: directory)
        }
    }

    /// Writes an object that is not there yet.
    func write(_ bytes: [UInt8], digest: Digest) throws(FileError) {
        let name = FilePath.Component(stringLiteral: digest.description)
        if try holds(digest, at: name) {
            // A run that was killed may have given it the name.
            try directory.synchronize()
        } else {
            try directory.write(bytes, to: name, durably: true)
        }
    }

    /// Reads an object whose name is not the digest of its bytes; `nil` for one that is missing or too large.
    func bytes(of name: FilePath.Component, limit: Int) throws(FileError) -> [UInt8]? {
        guard try directory.status(FilePath(name))?.kind == .file,
            let file = try directory.file(reading: FilePath(name)),
            try file.status().size <= limit
        else { return nil }
        return try file.readAll(limit: limit)
    }

    /// Whether an object is there and undamaged.
    private func holds(_ digest: Digest, at name: FilePath.Component) throws(FileError) -> Bool {
        guard try directory.status(FilePath(name))?.kind == .file,
            let file = try directory.file(reading: FilePath(name))
        else { return false }
        return try Digest(of: file) == digest
    }
}
