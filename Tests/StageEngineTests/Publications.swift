import FoundationEssentials
import StageDigest
import StageIndex
import StageModel
import StagePublish
import StageSystem
import Synchronization
import SystemPackage

/// The files and options of a version to publish.
struct PublicationRequest: Sendable {
    var files: [String: [UInt8]]
    var links: [String: String] = [:]
    var directories: [String] = []
    var makesDeltas = true
    var makesPatches = false
    var partSize: ByteCount?
    var makesArchive = false
    var previous = ContentIndex()
    /// Further versions to make deltas from.
    var older: [ContentIndex] = []

    /// Packages the files, which it writes to `source`, into a store.
    fileprivate func publish(
        from source: String,
        to store: Directory
    ) async throws -> IndexedPack {
        try write(to: source)
        let recipe = try Recipe(
            json: Array(
                #"""
                {"assetPackID": "levels", "downloadPolicy": {"onDemand": {}},
                 "fileSelectors": [{"directory": "."}], "sourceRoot": "\#(source)"}
                """#.utf8
            )
        )
        var writer = IndexedPackWriter(width: 2)
        writer.level = 3
        writer.previous = previous
        writer.older = older
        writer.makesDeltas = makesDeltas
        writer.makesPatches = makesPatches
        if let partSize { writer.patchPartSize = partSize }
        writer.makesArchive = makesArchive
        let packaged = try await writer.write(RecipeEvaluation(recipe), to: store)
        try FileManager.default.removeItem(atPath: source)
        return packaged
    }

    /// Writes the files below a directory; executable are those that end in `.sh`.
    private func write(to source: String) throws {
        let root = try Directory.make(FilePath(source))
        // Bytes, because names that are canonically equivalent in Unicode are different directories.
        var parents: Set<[UInt8]> = []
        for (path, bytes) in files {
            if let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")),
                parents.insert(Array(path[..<slash].utf8)).inserted
            {
                _ = try Directory.make(FilePath("\(source)/\(path[..<slash])"))
            }
            let file = try root.file(
                creating: FilePath(path),
                permissions: path.hasSuffix(".sh") ? .executable : .file
            )
            try file.write(bytes.span, at: 0)
        }
        for path in directories { _ = try Directory.make(FilePath("\(source)/\(path)")) }
        for (path, target) in links {
            try Directory.open(FilePath(source)).createLink(FilePath(path), to: target)
        }
    }

    /// Returns the digest of everything that a publication depends on.
    fileprivate func digest(in store: [String: Digest]) -> Digest {
        var hasher = SHA256Hasher()
        for (path, bytes) in files.sorted(by: { $0.key < $1.key }) {
            hasher.add("\(path): \(bytes.count)")
            hasher.update(bytes.span)
        }
        for (path, target) in links.sorted(by: { $0.key < $1.key }) {
            hasher.add("\(path) → \(target)")
        }
        for path in directories { hasher.add(path) }
        hasher.add("\(makesDeltas) \(makesPatches) \(makesArchive) \(partSize?.rawValue ?? 0)")
        for index in [previous] + older { hasher.update(index.encoded().span) }
        for (path, digest) in store.sorted(by: { $0.key < $1.key }) {
            hasher.add("\(path) \(digest)")
        }
        return hasher.finish()
    }
}

extension SHA256Hasher {
    /// Adds a line of text.
    fileprivate mutating func add(_ text: String) { update(Array("\(text)\n".utf8).span) }
}

/// The publications of this process.
///
/// Most tests of a suite publish the same versions, and packaging them takes most of their time. The same files, options
/// and objects in the store give the same objects, so that later ones are copied.
final class Publications: Sendable {
    static let shared = Publications()

    /// The result of a publication, and the objects that it added to a store or repaired there, without marks.
    private struct Publication: Sendable {
        var pack: IndexedPack
        /// The objects by their paths in the store.
        var objects: [String: [UInt8]]
    }

    private let tasks = Mutex<[Digest: Task<Publication, any Error>]>([:])

    /// Publishes a version to a store; its files are written to `source` if no test has published the same before.
    func publish(
        _ request: PublicationRequest,
        from source: String,
        to store: Directory
    ) async throws -> IndexedPack {
        let before = try Self.objects(in: store)
        let digests = before.mapValues { Digest(of: $0) }
        let key = request.digest(in: digests)
        let (task, isOwn) = tasks.withLock { tasks in
            if let task = tasks[key] { return (task, false) }
            let task = Task<Publication, any Error> {
                let pack = try await request.publish(from: source, to: store)
                let objects = try Self.objects(in: store).filter { before[$0.key] != $0.value }
                return Publication(pack: pack, objects: objects)
            }
            tasks[key] = task
            return (task, true)
        }
        let publication: Publication
        do {
            publication = try await task.value
        } catch {
            tasks.withLock { $0[key] = nil }
            // The store of the other test may have been removed.
            guard isOwn else { return try await request.publish(from: source, to: store) }
            throw error
        }
        guard !isOwn else { return publication.pack }
        for (path, bytes) in publication.objects {
            _ = try store.makeDirectory(FilePath(String(path.prefix { $0 != "/" })))
            let file = try store.file(updating: FilePath(path))
            try file.truncate(to: 0)
            try file.write(bytes.span, at: 0)
        }
        return publication.pack
    }

    /// The objects in a store by their paths.
    private static func objects(in store: Directory) throws -> [String: [UInt8]] {
        var objects: [String: [UInt8]] = [:]
        for folder in ["a", "b", "d", "i", "p"] {
            let path = "\(store.path)/\(folder)"
            let names = try? FileManager.default.contentsOfDirectory(atPath: path)
            for name in names ?? [] {
                objects["\(folder)/\(name)"] = Array(
                    try Data(contentsOf: URL(filePath: "\(path)/\(name)"))
                )
            }
        }
        return objects
    }
}
