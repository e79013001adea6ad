import StageDigest
import StageFrame
package import StageIndex
package import StageModel
package import StageSystem
package import SystemPackage

/// A pack's index in a publisher's store.
package struct StoredIndex: Equatable, Sendable {
    /// The index.
    package var index: ContentIndex
    /// The reference to the index for the manifest, with the deltas in the store: those from the newest versions, within
    /// the limit of a manifest.
    package var reference: PackIndex
    /// The number of older versions with deltas in the store that the reference does not name.
    package private(set) var unnamedBases = 0
    /// The delta sets in the store, by the digests of the older indexes; the reference names them.
    package var deltaSets: [Digest: DeltaSet] = [:]
    /// The archive of the same files in the store, with a URL relative to the store; `nil` if there is none,
    /// or it was not searched for.
    package var archive: PackArchive?

    /// The reason why a file is not a pack's index.
    package indirect enum Fault: Error, Equatable, Sendable {
        /// The file cannot be read.
        case file(FileError)
        /// The file is not an index.
        case notAnIndex(FilePath, reason: String)
        /// The name of the file is the digest of other bytes.
        case damaged(FilePath)
        /// The index does not fit in memory.
        case noMemory(FilePath, needed: ByteCount, available: ByteCount)
        /// The file is the delta of an index, which is in the folder of indexes, too.
        case difference(FilePath)
    }

    /// Reads an index of a store, `…/i/<SHA-256>` and, unless `findsCompanions` is false, finds its deltas,
    /// delta sets, patches and archive, which it reads completely.
    ///
    /// - Parameters:
    ///   - path: The path of the file.
    ///   - findsCompanions: `true` to find the other objects of the pack.
    ///   - memory: The memory in which the index must fit; `nil` for what is available.
    /// - Throws: ``Fault``; ``Fault/damaged(_:)`` if the name of the file is the digest of other bytes.
    package init(
        at path: FilePath,
        findsCompanions: Bool = true,
        memory: ByteCount? = nil
    ) throws(Fault) {
        let stored: [UInt8]
        do throws(FileError) {
            stored = try File.open(readingRegular: path).readAll(limit: IndexLimits.byteCount)
        } catch {
            throw .file(error)
        }
        let digest = Digest(of: stored)
        let name = path.lastComponent.flatMap { StoreObjectName($0.string) }
        let folder = path.absolute.removingLastComponent().lastComponent
        if name?.content != nil, folder?.string == StoreObjectKind.index.folder {
            throw .difference(path)
        }
        // A file with another name may be an index that was downloaded.
        if let expected = name?.digest, expected != digest { throw .damaged(path) }
        let decoded = try Self.decode(stored, at: path, memory: memory)
        index = decoded.index
        let contentDigest = Digest(of: decoded.content)
        reference = PackIndex(
            url: "i/\(digest)",
            size: ByteCount(stored.count),
            digest: digest,
            contentSize: ByteCount(decoded.content.count),
            contentDigest: contentDigest,
            bundleSize: index.storedSize
        )
        guard findsCompanions else { return }
        do throws(FileError) {
            unnamedBases = try findDeltas(in: path.removingLastComponent())
            try findDeltaSets(in: path.removingLastComponent().pushing("../d"))
            try findPatches(in: path.removingLastComponent().pushing("../p"))
            try findPatchIndexDeltas(in: path.removingLastComponent())
            archive = try Self.archive(of: contentDigest, beside: path)
            try findFileTableDelta(in: path.removingLastComponent())
        } catch {
            throw .file(error)
        }
    }

    /// Creates the value for an index that was just written to a store, with the existing delta sets.
    init(
        _ index: ContentIndex,
        contentSize: ByteCount,
        contentDigest: Digest,
        size: ByteCount,
        digest: Digest,
        archive: PackArchive?,
        in store: Directory
    ) throws(FileError) {
        self.index = index
        self.archive = archive
        reference = PackIndex(
            url: "i/\(digest)",
            size: size,
            digest: digest,
            contentSize: contentSize,
            contentDigest: contentDigest,
            bundleSize: index.storedSize
        )
        unnamedBases = try findDeltas(in: store.path.appending("i"))
        try findFileTableDelta(in: store.path.appending("i"))
        try findDeltaSets(in: store.path.appending(StoreObjectKind.deltas.folder))
        try findPatches(in: store.path.appending(StoreObjectKind.patch.folder))
        try findPatchIndexDeltas(in: store.path.appending("i"))
    }

    /// Decompresses and decodes an index, after comparing the memory that each step needs.
    ///
    /// - Parameters:
    ///   - stored: The compressed bytes.
    ///   - path: The path of the file, for errors.
    ///   - memory: The memory in which the index must fit; `nil` for what is available.
    /// - Returns: The index, and its decompressed bytes.
    /// - Throws: ``Fault/notAnIndex(_:reason:)`` or ``Fault/noMemory(_:needed:available:)``.
    static func decode(
        _ stored: [UInt8],
        at path: FilePath,
        memory: ByteCount? = nil
    ) throws(Fault) -> (index: ContentIndex, content: [UInt8]) {
        // Bytes without a size are refused below, and so is an index that is larger than the limit.
        let size = (try? FrameDecompressor.contentSize(of: stored.span)) ?? 0
        let available = memory ?? availableMemory
        if size <= IndexLimits.byteCount, ByteCount(size) > available {
            throw .noMemory(path, needed: ByteCount(size), available: available)
        }
        let content: [UInt8]
        do throws(FrameError) {
            content = try Self.content(of: stored)
        } catch {
            throw .notAnIndex(path, reason: error.description)
        }
        var bounds = IndexBounds.largest
        bounds.memory = memory ?? availableMemory
        do throws(IndexError) {
            return (try ContentIndex(decoding: content, within: bounds), content)
        } catch {
            guard let needed = error.neededMemory else {
                throw .notAnIndex(path, reason: error.description)
            }
            throw .noMemory(path, needed: needed, available: bounds.memory)
        }
    }

    /// The memory in which an index must fit.
    private static var availableMemory: ByteCount {
        ByteCount(AvailableMemory.byteCount(countingSwap: true))
    }

    /// Decompresses an index.
    static func content(of stored: [UInt8]) throws(FrameError) -> [UInt8] {
        let count = try FrameDecompressor.contentSize(of: stored.span)
        guard count <= IndexLimits.byteCount else {
            throw FrameError.wrongLength(expected: IndexLimits.byteCount, actual: count)
        }
        var decompressor = FrameDecompressor()
        return try decompressor.decompress(stored.span, to: count)
    }
}

extension StoredIndex {
    /// Finds the archive of the index in its store.
    private static func archive(
        of content: Digest,
        beside path: FilePath
    ) throws(FileError) -> PackArchive? {
        let folder = path.removingLastComponent()
        return try StoredArchive.find(
            of: content,
            in: Directory.open(folder.isEmpty ? ".." : folder.pushing(".."))
        )
    }

    /// Returns the archive for a manifest whose index is at a URL.
    private func archive(besideIndexAt url: String) -> PackArchive? {
        guard var archive else { return nil }
        archive.url = Self.url(of: archive.url, besideIndexAt: url)
        return archive
    }

    /// Returns the URL of an object for a manifest whose index is at a URL, from its path in the store.
    private static func url(of object: String, besideIndexAt url: String) -> String {
        let folders = url.withoutQuery.utf8
            .split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false).dropLast()
            .map { Substring($0) }
        let above = folders.isEmpty ? [".."] : Array(folders.dropLast())
        return (above + [object[...]]).joined(separator: "/")
    }

    /// Returns a delta for clients of the archive or a patch for a manifest whose index is at a URL.
    private static func delta(
        _ delta: PackIndex.CompanionDelta,
        besideIndexAt url: String
    ) -> PackIndex.CompanionDelta {
        var delta = delta
        delta.url = Self.url(of: delta.url, besideIndexAt: url)
        return delta
    }

    /// Returns the deltas for a manifest whose index is at a URL.
    func deltas(besideIndexAt url: String) -> [PackIndex.Delta] {
        let path = url.withoutQuery
        let folder = path.utf8.lastIndex(of: UInt8(ascii: "/")).map { path[...$0] } ?? ""
        return reference.deltas.map { delta in
            var delta = delta
            delta.url = String(folder + delta.url.dropFirst("i/".count))
            delta.patch = delta.patch.map { patch in
                var patch = patch
                patch.url = Self.url(of: patch.url, besideIndexAt: url)
                patch.indexDelta = patch.indexDelta.map { Self.delta($0, besideIndexAt: url) }
                return patch
            }
            return delta
        }
    }

    /// Returns the pack of a recipe for a manifest, with the index at a URL and the other objects relative to
    /// it.
    package func pack(of recipe: Recipe, version: Int, url: String) -> Pack {
        var index = reference
        index.url = url
        index.deltas = deltas(besideIndexAt: url)
        index.fileTableDelta = index.fileTableDelta.map { Self.delta($0, besideIndexAt: url) }
        var pack = Pack(
            id: recipe.pack,
            version: version,
            policy: recipe.policy,
            archive: archive(besideIndexAt: url),
            index: index,
            installedSize: self.index.installedSize,
            fileCount: self.index.fileCount
        )
        pack.directoryCount = self.index.directoryCount
        pack.userInfo = recipe.userInfo
        return pack
    }
}

extension StoredIndex.Fault: CustomStringConvertible {
    /// A lower-case sentence fragment for people.
    package var description: String {
        switch self {
        case .file(let error): error.description
        case .notAnIndex(let path, let reason): "'\(path)' is not the index of a pack: \(reason)"
        case .damaged(let path): "'\(path)' is damaged: its bytes have another digest than its name"
        case .noMemory(let path, let needed, let available):
            "not enough memory for the index '\(path)': \(needed) needed, \(available) available"
        case .difference(let path): "'\(path)' is the delta of an index, and no index"
        }
    }
}
