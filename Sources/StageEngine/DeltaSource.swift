import StageContainer
import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// A delta set, and the files of the staged generation that its windows are in.
struct DeltaSource: Sendable {
    /// The object that the set is in.
    let mirrors: [String]
    /// The bytes of that object.
    let size: Int64
    let set: DeltaSet
    /// Where each delta frame is in the object.
    let ranges: [Range<Int64>]
    private let tableSize: Int
    private let content: Directory
    /// The files of windows, by their entries in the older index.
    private let paths: [Int: FilePath]

    /// A window that was read, since frames that refer to it follow each other.
    struct Window: Sendable {
        fileprivate var number: Int
        fileprivate var bytes: [UInt8]?
    }

    /// Reads a table whose digest is right; `nil` if it is of other versions than `base` and `new`.
    init?(
        _ table: [UInt8],
        from mirrors: [String],
        size: Int64,
        _ base: IndexSource.Base,
        to new: ContentIndex
    ) {
        // A set that cannot be used is as good as none.
        guard let set = try? DeltaSet(decodingTable: table),
            (try? set.check(to: new) { base.held.file(at: $0)?.size }) != nil
        else { return nil }
        self.mirrors = mirrors
        self.size = size
        self.set = set
        content = base.content
        tableSize = table.count
        ranges = set.ranges(afterTable: table.count)
        var paths: [Int: FilePath] = [:]
        for segment in set.windows.lazy.flatMap(\.segments) where paths[segment.entry] == nil {
            paths[segment.entry] = base.held.file(at: segment.entry).map { FilePath($0.path) }
        }
        self.paths = paths
    }

    /// Plans the requests for what makes some of `frames`, positions in the newer index.
    func plan(for frames: [Int]) -> RangePlan {
        RangePlan(frames, of: set, tableSize: tableSize)
    }

    /// Makes the content of a frame from the bytes of a delta frame, the one of this number; `nil` if it
    /// does not become what it ought to be: an old file that is damaged makes something else, or nothing.
    func content(
        of number: Int,
        _ stored: [UInt8],
        in index: ContentIndex,
        _ decompressor: inout FrameDecompressor,
        _ window: inout Window?
    ) throws(FileError) -> [UInt8]? {
        let delta = set.frames[number]
        let frame = index.frames[delta.position]
        guard Digest(of: stored) == delta.digest else { return nil }
        if window?.number != delta.window {
            // Never two at once.
            window = nil
            window = Window(number: delta.window, bytes: try bytes(of: delta.window))
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

    /// Reads a window; `nil` if the files are not as long as they ought to be.
    private func bytes(of window: Int) throws(FileError) -> [UInt8]? {
        let window = set.windows[window]
        var bytes: [UInt8] = []
        if window.segments.count > 1 { bytes.reserveCapacity(window.length) }
        for segment in window.segments {
            guard let path = paths[segment.entry], let file = try content.file(reading: path) else {
                return nil
            }
            var part = [UInt8](repeating: 0, count: segment.length)
            guard try file.read(into: &part, at: segment.offset) == part.count else { return nil }
            if window.segments.count == 1 { return part }
            bytes += part
        }
        return bytes
    }
}

extension IndexFetch {
    /// Fetches the table of the delta set from the staged generation, if there is one that is shorter than
    /// what is missing; returns the bytes received too.
    ///
    /// Nothing that is wrong with the set, its server or the old files is an error: what does not become
    /// what it ought to be is fetched from bundles.
    func deltas(
        for missing: [Int],
        of index: ContentIndex,
        _ base: IndexSource.Base?
    ) async throws(StageError) -> (source: DeltaSource?, received: ByteCount) {
        guard let base, let digest = base.held.indexDigest,
            let reference = reference.deltas.first(where: { $0.base == digest })?.frames,
            reference.tableSize < index.storedLength(of: missing)
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
        do throws(StageError) {
            table = try await fetching.fetch(request).bytes
        } catch .transfer {
            return (nil, .zero)
        }
        let received = ByteCount(table.count)
        guard received == reference.tableSize, Digest(of: table) == reference.tableDigest else {
            return (nil, received)
        }
        let source = DeltaSource(
            table,
            from: mirrors,
            size: reference.size.rawValue,
            base,
            to: index
        )
        return (source, received)
    }
}
