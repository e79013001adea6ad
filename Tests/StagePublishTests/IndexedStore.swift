import StageDigest
import StageFrame
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// A publisher's store of indexed packs, in the directory of the running test.
struct IndexedStore {
    let root: Directory
    let name: String

    init(_ name: String = "store") throws {
        root = try TemporaryDirectory.required()
        self.name = name
        _ = try root.makeDirectory(FilePath(name))
    }

    /// Packages files, which are written to a tree of this name.
    func package(
        _ files: [String: [UInt8]],
        _ tree: String,
        after previous: ContentIndex = ContentIndex(),
        change: (inout IndexedPackWriter) -> Void = { _ in }
    ) async throws -> IndexedPack {
        let source = try SourceTree(tree)
        for (path, bytes) in files { try source.file(path, bytes) }
        var writer = IndexedPackWriter(width: 2)
        writer.level = 3
        writer.previous = previous
        writer.makesPatches = false
        change(&writer)
        return try await writer.write(source.evaluate(#"{"directory": "."}"#), to: directory())
    }

    /// Returns the index of a pack as the store has it.
    func stored(_ pack: IndexedPack) throws -> StoredIndex {
        try StoredIndex(at: directory().path.appending(pack.reference.url))
    }

    /// Replaces an object, or removes it.
    func replace(_ path: String, with bytes: [UInt8]?) throws {
        let location = FilePath(path)
        let folder = try directory(location.removingLastComponent())
        let name = try #require(location.lastComponent)
        if let bytes {
            try folder.write(bytes, to: name, durably: false)
        } else {
            try folder.remove(name)
        }
    }

    /// Collects the garbage of the store; `folder` is the directory of the manifests, without it the store.
    func collect(
        keeping manifests: [Manifest],
        in folder: FilePath? = nil,
        for seconds: Int64,
        now: Int64 = 1_800_000_000,
        isDryRun: Bool = false
    ) async throws -> StoreGarbageCollection {
        let directory = try directory()
        let lock = try await StoreLock(alone: directory, isDryRun: isDryRun)
        return try StoreGarbageCollection.collect(
            directory,
            holding: lock,
            keeping: manifests.map { PublishedManifest($0, in: folder ?? directory.path) },
            for: seconds,
            now: now,
            isDryRun: isDryRun
        )
    }

    /// Returns the store, or a directory in it.
    func directory(_ path: FilePath? = nil) throws -> Directory {
        let store = root.path.appending(name)
        return try Directory.open(path.map { store.pushing($0) } ?? store)
    }

    /// Returns the bytes of an object.
    func bytes(_ path: String) throws -> [UInt8] {
        try StageTesting.bytes(of: root.path.appending(name).pushing(FilePath(path)))
    }

    /// Returns the names in a directory, without those of records.
    func names(in folder: FilePath) throws -> [String] {
        try directory(folder).entries().map(\.path.string)
            .filter { !$0.hasSuffix(".pack.json") }.sorted()
    }

    /// Returns the table of a pack's delta set.
    func deltaSet(of pack: IndexedPack) throws -> DeltaSet {
        let frames = try #require(pack.reference.deltas.first?.frames)
        let object = try bytes("d/\(frames.digest)")
        return try DeltaSet(decodingTable: Array(object.prefix(Int(frames.tableSize.rawValue))))
    }

    /// Returns the files of a version, restored from bundles only.
    func files(of index: ContentIndex) throws -> [String: [UInt8]] {
        let bundles = try index.bundles.map { bundle in
            let bytes = try bytes("b/\(bundle.digest)")
            #expect(Digest(of: bytes) == bundle.digest && Int64(bytes.count) == bundle.size)
            return bytes
        }
        var decompressor = FrameDecompressor()
        let frames = try index.frames.map { frame in
            let range = Int(frame.range.lowerBound)..<Int(frame.range.upperBound)
            let stored = Array(bundles[frame.bundle][range])
            guard frame.compressed != nil else { return stored }
            return try decompressor.decompress(stored.span, to: frame.length)
        }
        var files: [String: [UInt8]] = [:]
        for entry in index.entries {
            guard case .file(let file) = entry.kind else { continue }
            switch file.content {
            case .part where file.size == 0: files[entry.path.text] = []
            case .part(let frame, let offset):
                files[entry.path.text] = Array(frames[frame][offset..<offset + Int(file.size)])
            case .frames(let list): files[entry.path.text] = list.flatMap { frames[$0] }
            }
        }
        return files
    }
}

extension DeltaSetWriter {
    /// Returns a writer that makes delta sets only.
    static func withoutPatches(width: Int) -> DeltaSetWriter {
        var writer = DeltaSetWriter(width: width)
        writer.makesPatches = false
        return writer
    }
}
