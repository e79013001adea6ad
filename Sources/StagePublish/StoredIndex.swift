import StageDigest
import StageFrame
public import StageIndex
public import StageModel
public import StageSystem
public import SystemPackage

/// The index of a pack as it lies in a publisher's store.
public struct StoredIndex: Equatable, Sendable {
    /// The index.
    public var index: ContentIndex
    /// What a manifest says of it, with the deltas that lie beside it.
    public var reference: PackIndex
    /// The delta sets that lie in the store for it, by the digests of the older indexes; the reference
    /// names them.
    public var deltaSets: [Digest: DeltaSet] = [:]
    /// The archive of the same files that lies in the store, with a URL relative to that; `nil` without one, or where it
    /// was not looked for.
    public var archive: PackArchive?

    /// Why a file is not the index of a pack.
    public indirect enum Fault: Error, Equatable, Sendable {
        /// It cannot be read.
        case file(FileError)
        /// It is something else.
        case notAnIndex(FilePath, reason: String)
    }

    /// Reads an index of a store, `…/i/<SHA-256>`; all of its archive is read, too, unless `findsArchive` is false.
    public init(at path: FilePath, findsArchive: Bool = true) throws(Fault) {
        let stored: [UInt8]
        let names: [String]
        do throws(FileError) {
            stored = try File.open(readingRegular: path).readAll(limit: IndexLimits.byteCount)
            let directory = path.removingLastComponent()
            names = try Directory.open(directory.isEmpty ? "." : directory).entries().map(
                \.name.string
            )
        } catch {
            throw .file(error)
        }
        let content: [UInt8]
        do throws(FrameError) {
            let count = try FrameDecompressor.contentSize(of: stored.span)
            guard count <= IndexLimits.byteCount else {
                throw FrameError.wrongLength(expected: IndexLimits.byteCount, actual: count)
            }
            var decompressor = FrameDecompressor()
            content = try decompressor.decompress(stored.span, to: count)
        } catch {
            throw .notAnIndex(path, reason: error.description)
        }
        do throws(IndexError) {
            index = try ContentIndex(decoding: content)
        } catch {
            throw .notAnIndex(path, reason: error.description)
        }
        let digest = Digest(of: stored)
        let contentDigest = Digest(of: content)
        reference = PackIndex(
            url: "i/\(digest)",
            size: ByteCount(stored.count),
            digest: digest,
            contentSize: ByteCount(content.count),
            contentDigest: contentDigest,
            bundleSize: index.storedSize
        )
        do throws(FileError) {
            try findDeltas(named: names, in: path.removingLastComponent())
            try findDeltaSets(in: path.removingLastComponent().pushing("../d"))
            if findsArchive { archive = try Self.archive(of: contentDigest, beside: path) }
        } catch {
            throw .file(error)
        }
    }
}

extension StoredIndex {
    /// Finds the archive of the store that an index lies in.
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

    /// The archive, as a manifest names it whose index is at a URL.
    private func archive(besideIndexAt url: String) -> PackArchive? {
        guard var archive else { return nil }
        let folders = url.split(separator: "/", omittingEmptySubsequences: false).dropLast()
        let above = folders.isEmpty ? [".."] : Array(folders.dropLast())
        archive.url = (above + [archive.url[...]]).joined(separator: "/")
        return archive
    }

    /// The pack of a recipe as a manifest offers it, whose index is at a URL; what lies beside it is
    /// beside that.
    public func pack(of recipe: Recipe, version: Int, url: String) -> Pack {
        var index = reference
        let folder = url.prefix(through: url.lastIndex(of: "/") ?? url.startIndex)
        let isInFolder = url.contains("/")
        index.url = url
        for position in index.deltas.indices {
            let name = index.deltas[position].url.dropFirst("i/".count)
            index.deltas[position].url = String(isInFolder ? folder + name : name)
        }
        var pack = Pack(
            id: recipe.pack,
            version: version,
            policy: recipe.policy,
            archive: archive(besideIndexAt: url),
            index: index,
            installedSize: self.index.installedSize,
            fileCount: self.index.fileCount
        )
        pack.userInfo = recipe.userInfo
        return pack
    }
}

extension StoredIndex.Fault: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .file(let error): error.description
        case .notAnIndex(let path, let reason): "'\(path)' is not the index of a pack: \(reason)"
        }
    }
}
