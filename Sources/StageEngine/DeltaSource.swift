import Logging
import StageContainer
import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// A delta set, and the files of the staged generation that contain its windows.
struct DeltaSource: Sendable {
    /// The URLs of the object that contains the set.
    let mirrors: [String]
    /// The size of that object, in bytes.
    let size: Int64
    let set: DeltaSet
    /// The range of each delta frame in the object.
    let ranges: [Range<Int64>]
    private let tableSize: Int
    private let content: Directory
    /// The paths of the files that windows refer to, by their position in the older index.
    private let paths: [Int: FilePath]

    /// The window that was read last: frames with the same window are consecutive.
    struct Window: Sendable {
        fileprivate var number: Int
        fileprivate var bytes: [UInt8]?
    }

    /// Decodes a table whose digest was verified; returns `nil` if it does not fit `base` and `new`.
    init?(
        decoding table: [UInt8],
        from mirrors: [String],
        size: Int64,
        base: IndexSource.Base,
        to new: ContentIndex
    ) {
        // An unusable set is treated as absent.
        guard let set = try? DeltaSet(decodingTable: table),
            (try? set.check(to: new) { base.contentMap.file(at: $0)?.size }) != nil
        else { return nil }
        self.mirrors = mirrors
        self.size = size
        self.set = set
        content = base.content
        tableSize = table.count
        ranges = set.ranges(afterTable: table.count)
        var paths: [Int: FilePath] = [:]
        for segment in set.windows.lazy.flatMap(\.segments) where paths[segment.entry] == nil {
            paths[segment.entry] = base.contentMap.file(at: segment.entry).map { FilePath($0.path) }
        }
        self.paths = paths
    }

    /// Plans the requests for those of `frames`, positions in the newer index, that the set can produce.
    func plan(for frames: [Int]) -> RangePlan {
        RangePlan(frames, of: set, tableSize: tableSize)
    }

    /// Decodes the delta frame `number`.
    ///
    /// Returns `nil` if the result does not match the digest of its frame, for example because a file of the
    /// base is damaged.
    func content(
        of number: Int,
        decoding stored: [UInt8],
        in index: ContentIndex,
        using decompressor: inout FrameDecompressor,
        window: inout Window?
    ) throws(FileError) -> [UInt8]? {
        let delta = set.frames[number]
        let frame = index.frames[delta.position]
        guard Digest(of: stored) == delta.digest else { return nil }
        if window?.number != delta.window {
            // Frees the old window first, so that there is only one in memory.
            window = nil
            window = Window(number: delta.window, bytes: bytes(of: delta.window))
        }
        guard let prefix = window?.bytes,
            let content = try? decompressor.decompress(
                stored.span,
                after: prefix.span,
                to: frame.length
            ), Digest(of: content) == frame.digest
        else { return nil }
        return content
    }

    /// Reads a window; `nil` if a file is missing, too short or unreadable.
    private func bytes(of window: Int) -> [UInt8]? {
        let window = set.windows[window]
        var bytes: [UInt8] = []
        if window.segments.count > 1 { bytes.reserveCapacity(window.length) }
        for segment in window.segments {
            guard let path = paths[segment.entry],
                let part = content.part(of: path, at: segment.offset, length: segment.length)
            else { return nil }
            if window.segments.count == 1 { return part }
            bytes += part
        }
        return bytes
    }
}

extension Directory {
    /// Reads a part of a file; `nil` if the file is missing, too short or unreadable: a file of a staged generation
    /// may be damaged, and its content then comes from another source.
    fileprivate func part(of path: FilePath, at offset: Int64, length: Int) -> [UInt8]? {
        var part = [UInt8](repeating: 0, count: length)
        do throws(FileError) {
            let count = try file(reading: path)?.read(into: &part, at: offset)
            return count == length ? part : nil
        } catch {
            return nil
        }
    }
}

extension IndexFetch {
    /// Fetches the table of the delta set from the staged generation, if there is such a set and its table has fewer
    /// bytes than the ranges of bundles without it.
    ///
    /// Also returns the number of bytes received.
    ///
    /// A bad set, a failing server or a damaged old file is not an error: the frames concerned are fetched
    /// from bundles.
    func deltas(
        for missing: [Int],
        of index: ContentIndex,
        _ base: IndexSource.Base?
    ) async throws(StageError) -> (source: DeltaSource?, received: ByteCount) {
        guard let base,
            let reference = reference.delta(from: base.contentMap.indexDigest)?.frames,
            candidates(from: base)
                .usesSet(insteadOf: ByteCount(RangePlan(missing, of: index).byteCount))
        else { return (nil, .zero) }
        let manifest = fetching.manifest
        let mirrors = manifest.manifest.urls(
            forDeltaSet: reference.digest,
            of: self.reference,
            manifestURL: manifest.record.resolvedURL
        )
        var request = fetching.request(for: mirrors, limit: reference.tableSize)
        request.part = (0..<reference.tableSize.rawValue, reference.size.rawValue)
        let table: [UInt8]
        let url: String
        do throws(StageError) {
            let document = try await fetching.fetch(request)
            (table, url) = (document.bytes, document.url)
        } catch {
            guard error.isOfSource else { throw error }
            fetching.log(error, as: Self.message)
            return (nil, .zero)
        }
        let received = ByteCount(table.count)
        guard received == reference.tableSize, Digest(of: table) == reference.tableDigest else {
            fetching.log(.transfer(.wrongDigest(url: url)), as: Self.message)
            return (nil, received)
        }
        let source = DeltaSource(
            decoding: table,
            from: mirrors,
            size: reference.size.rawValue,
            base: base,
            to: index
        )
        if source == nil {
            fetching.log("its table is not that of these versions", as: Self.message)
        }
        return (source, received)
    }

    private static let message: Logger.Message = "the delta set of a pack cannot be used"
}
