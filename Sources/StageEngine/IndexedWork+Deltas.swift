import StageContainer
import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import StageTransfer
import Synchronization
import SystemPackage

extension IndexedWork {
    /// Makes frames of a delta set and of the files of the staged generation, and writes them; returns
    /// those of `missing` that are still to be fetched as they are.
    ///
    /// Nothing that is wrong with the set, its server or the old files is an error: what does not become
    /// what it ought to be is left. Memory: two ranges of 4 MiB at most and two windows at once.
    ///
    /// - Throws: ``StageError`` if the task is cancelled, or what was made cannot be written.
    func makeFrames(
        _ missing: [Int],
        of tree: IndexedTree,
        except done: [Bool],
        from base: Directory?,
        _ held: HeldContent?,
        _ figures: inout StagingFigures
    ) async throws(StageError) -> [Int] {
        let wanted = missing.reduce(Int64(0)) { $0 + Int64(tree.index.frames[$1].storedLength) }
        guard let base, let held, let digest = held.indexDigest,
            let reference = reference.deltas.first(where: { $0.base == digest })?.frames,
            reference.tableSize.rawValue < wanted
        else { return missing }
        let fetch = DeltaFetch(work: self, tree: tree, done: done, reference: reference)
        guard let table = try await fetch.table() else { return missing }
        let source = try await blocking { () throws(StageError) in
            try Self.storing { () throws(FileError) in
                try DeltaSource(table, base, held, tree.index)
            }
        }
        guard let source else { return missing }
        let begun = max(.zero, tree.index.storedSize - ByteCount(wanted))
        let made = try await fetch.run(RangePlan(missing, of: source), source, begun)
        figures.transferred = figures.transferred + fetch.received
        return missing.filter { !made.contains($0) }
    }
}

extension RangePlan {
    /// Plans the requests for delta frames.
    fileprivate init(_ missing: [Int], of source: DeltaSource) {
        self.init(missing, of: source.set, tableSize: source.tableSize)
    }
}

/// A delta set, and the files that its windows are in.
private struct DeltaSource: Sendable {
    let set: DeltaSet
    let tableSize: Int
    /// Where each delta frame is in the object.
    let ranges: [Range<Int64>]
    private let content: Directory
    /// The files of windows, by their entries in the older index.
    private let paths: [Int: FilePath]

    /// Reads a table whose digest is right; `nil` if it is of other versions than the one that is held and
    /// `new`.
    init?(
        _ table: [UInt8],
        _ base: Directory,
        _ held: HeldContent,
        _ new: ContentIndex
    ) throws(FileError) {
        // A set that cannot be used is as good as none.
        guard let content = try base.directory(FilePath(ContainerLayout.content)),
            let set = try? DeltaSet(decodingTable: table),
            (try? set.check(to: new) { held.file(at: $0)?.size }) != nil
        else { return nil }
        self.set = set
        self.content = content
        tableSize = table.count
        ranges = set.ranges(afterTable: table.count)
        var paths: [Int: FilePath] = [:]
        for segment in set.windows.lazy.flatMap(\.segments) where paths[segment.entry] == nil {
            paths[segment.entry] = held.file(at: segment.entry).map { FilePath($0.path) }
        }
        self.paths = paths
    }

    /// Reads a window; `nil` if the files are not as long as they ought to be.
    func bytes(of window: Int) throws(FileError) -> [UInt8]? {
        let window = set.windows[window]
        var bytes: [UInt8] = []
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

/// Fetches delta frames, and makes frames of them.
private struct DeltaFetch: Sendable {
    let work: IndexedWork
    let tree: IndexedTree
    /// The entries that need nothing, by position.
    let done: [Bool]
    let reference: PackIndex.DeltaFrames
    private let tally = Tally()

    /// How many ranges are on their way or being worked on at once, each with a window.
    private static let width = 2

    /// What has come of it.
    private final class Tally: Sendable {
        let received = Mutex(ByteCount.zero)
        let reused = Mutex(ByteCount.zero)
    }

    init(
        work: IndexedWork,
        tree: IndexedTree,
        done: [Bool],
        reference: PackIndex.DeltaFrames
    ) {
        self.work = work
        self.tree = tree
        self.done = done
        self.reference = reference
    }

    /// The bytes received so far.
    var received: ByteCount { tally.received.withLock { $0 } }

    /// Fetches the table; `nil` if it cannot be had.
    func table() async throws(StageError) -> [UInt8]? {
        let bytes = try await part(0..<reference.tableSize.rawValue)
        return bytes.flatMap { Digest(of: $0) == reference.tableDigest ? $0 : nil }
    }

    /// Fetches what is planned, and returns the frames that it made, by their positions in the index.
    func run(
        _ plan: RangePlan,
        _ source: DeltaSource,
        _ begun: ByteCount
    ) async throws(StageError) -> Set<Int> {
        tally.reused.withLock { $0 = begun }
        let result = await withTaskGroup(of: Result<[Int], StageError>.self) { group in
            var requests = plan.requests.makeIterator()
            func start() {
                guard let request = requests.next() else { return }
                group.addTask { await frames(of: request, source) }
            }
            for _ in 0..<Self.width { start() }
            var made: Set<Int> = []
            var failure: StageError?
            for await result in group {
                switch result {
                case .success(let frames):
                    made.formUnion(frames)
                    if failure == nil { start() }
                case .failure(let error):
                    failure = failure ?? error
                    group.cancelAll()
                }
            }
            return failure.map(Result<Set<Int>, StageError>.failure) ?? .success(made)
        }
        return try result.get()
    }

    private func frames(
        of request: RangePlan.Request,
        _ source: DeltaSource
    ) async -> Result<[Int], StageError> {
        do throws(StageError) {
            guard let bytes = try await part(request.range) else { return .success([]) }
            return .success(
                try await work.blocking { () throws(StageError) in
                    try IndexedWork.storing { () throws(FileError) in
                        try make(request, of: bytes, source)
                    }
                }
            )
        } catch {
            return .failure(error)
        }
    }

    /// Fetches a range of the set; `nil` if no server gives it.
    private func part(_ range: Range<Int64>) async throws(StageError) -> [UInt8]? {
        let mirrors = work.manifest.manifest.urls(
            forDeltaSet: reference.digest,
            of: work.reference,
            manifestURL: work.manifest.record.resolvedURL
        )
        var fetch = work.request(for: mirrors, limit: ByteCount(Int64(range.count)))
        fetch.part = (range, reference.size.rawValue)
        do throws(StageError) {
            let bytes = try await work.fetch(fetch).bytes
            tally.received.withLock { $0 = $0 + ByteCount(bytes.count) }
            return bytes.count == range.count ? bytes : nil
        } catch .transfer {
            return nil
        }
    }

    /// Makes and writes the frames of a range, and returns those that became what they ought to be.
    private func make(
        _ request: RangePlan.Request,
        of bytes: [UInt8],
        _ source: DeltaSource
    ) throws(FileError) -> [Int] {
        var decompressor = FrameDecompressor()
        var cursor = DirectoryCursor(tree.content)
        var window: (number: Int, bytes: [UInt8]?)?
        var made: [Int] = []
        for number in request.frames {
            let delta = source.set.frames[number]
            let frame = tree.index.frames[delta.position]
            let start = Int(source.ranges[number].lowerBound - request.range.lowerBound)
            let stored = Array(bytes[start..<start + delta.length])
            guard Digest(of: stored) == delta.digest else { continue }
            if window?.number != delta.window {
                window = nil
                window = (delta.window, try source.bytes(of: delta.window))
            }
            // An old file that is damaged makes something else, or nothing.
            guard let prefix = window?.bytes,
                let content = try? decompressor.decompress(
                    stored.span,
                    after: prefix.span,
                    to: frame.length
                ), Digest(of: content) == frame.digest
            else { continue }
            _ = try tree.write(delta.position, content, except: done, &cursor)
            made.append(delta.position)
            let reused = tally.reused.withLock { reused in
                reused = reused + ByteCount(frame.storedLength)
                return reused
            }
            work.report(.received(reused, reused: reused))
        }
        return made
    }
}
