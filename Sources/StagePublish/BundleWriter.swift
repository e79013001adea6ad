import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// Writes frames into bundles, one after the other, and gives each bundle its name when it is full.
struct BundleWriter: ~Copyable {
    /// What a bundle has at most: a mirror or a cache takes objects of this size gladly.
    static let size = Int64(64 << 20)

    /// A bundle that is being written.
    private struct Open: ~Copyable {
        let file: File
        let name: FilePath.Component
        var hasher = SHA256Hasher()
        var size: Int64 = 0
    }

    private let directory: Directory
    private var open: Open?
    private(set) var bundles: [ContentIndex.Bundle]

    /// Creates a writer that goes on after bundles that there are.
    init(directory: Directory, after bundles: [ContentIndex.Bundle]) {
        self.directory = directory
        self.bundles = bundles
    }

    /// Writes a frame as it is stored, and returns its bundle and its place there.
    mutating func append(_ bytes: [UInt8]) throws(FileError) -> (bundle: Int, offset: Int64) {
        if let size = open?.size, size > 0, size + Int64(bytes.count) > Self.size { try close() }
        if open == nil { open = try Self.make(in: directory) }
        guard var current = open.take() else { preconditionFailure("a bundle is open") }
        let offset = current.size
        do throws(FileError) {
            try current.file.write(bytes.span, at: offset)
        } catch {
            _ = try? directory.remove(current.name)
            throw error
        }
        current.hasher.update(bytes.span)
        current.size += Int64(bytes.count)
        open = consume current
        return (bundles.count, offset)
    }

    /// Gives the bundle that is being written its name.
    mutating func close() throws(FileError) {
        guard let current = open.take() else { return }
        let (name, size) = (current.name, current.size)
        try current.file.synchronize()
        let digest = current.hasher.finish()
        try directory.rename(name, to: Self.name(of: digest), in: directory)
        bundles.append(ContentIndex.Bundle(digest: digest, size: size))
    }

    /// Removes the bundle that is being written.
    consuming func abandon() {
        // What is left has a name that nobody asks for.
        if let name = open?.name { _ = try? directory.remove(name) }
    }

    private static func make(in directory: Directory) throws(FileError) -> Open {
        let mark = String(UInt64.random(in: 0...UInt64.max), radix: 36)
        let name = FilePath.Component(stringLiteral: ".bundle.\(mark)")
        return Open(file: try directory.file(creating: FilePath(name)), name: name)
    }

    private static func name(of digest: Digest) -> FilePath.Component {
        FilePath.Component(stringLiteral: digest.description)
    }
}
