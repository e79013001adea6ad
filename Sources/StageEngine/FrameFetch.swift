import Dispatch
import StageContainer
import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import StageTransfer
import Synchronization
import SystemPackage

/// Fetches frames, a few ranges of bundles at a time, and has each written where it belongs.
struct FrameFetch: Sendable {
    let work: IndexedWork
    let tree: IndexedTree
    /// The entries that need nothing, by position.
    let done: [Bool]

    /// How many ranges are on their way or being written at once: each is held in memory.
    private static let width = 6

    /// What has come so far.
    fileprivate final class Progress: Sendable {
        private struct State {
            var received: Int64 = 0
            var written: Int64 = 0
        }

        private let state = Mutex(State())
        /// What has come and is not yet written.
        let backlog = Backlog(limit: .mebibytes(8))
        let reused: ByteCount

        init(reused: ByteCount) { self.reused = reused }

        func receive(_ count: Int) -> ByteCount {
            state.withLock { state in
                state.received += Int64(count)
                return ByteCount(state.received)
            }
        }

        func write(_ count: Int64) -> ByteCount {
            state.withLock { state in
                state.written += count
                return ByteCount(state.written)
            }
        }

        var received: ByteCount { state.withLock { ByteCount($0.received) } }
    }

    /// Fetches `frames`, positions in the index; returns the bytes received, and where from.
    func run(_ frames: [Int]) async throws(StageError) -> (ByteCount, String?) {
        let plan = RangePlan(frames, of: tree.index)
        let wanted = frames.reduce(Int64(0)) { $0 + Int64(tree.index.frames[$1].storedLength) }
        let progress = Progress(reused: max(.zero, tree.index.storedSize - ByteCount(wanted)))
        work.report(.received(progress.reused, reused: progress.reused))
        let bundles = BundleFiles(work: work, index: tree.index)
        let result = await withTaskGroup(of: Result<String, StageError>.self) { group in
            var running = 0
            var source: String?
            for request in plan.requests {
                if running == Self.width, let result = await group.next() {
                    running -= 1
                    if case .success(let url) = result { source = url }
                    if case .failure(let error) = result {
                        group.cancelAll()
                        return Result<String?, StageError>.failure(error)
                    }
                }
                running += 1
                group.addTask {
                    await Result { () async throws(StageError) in
                        try await run(request, bundles, progress)
                    }
                }
            }
            for await result in group {
                switch result {
                case .success(let url): source = url
                case .failure(let error):
                    group.cancelAll()
                    return .failure(error)
                }
            }
            return .success(source)
        }
        await bundles.remove()
        return (progress.received, try result.get())
    }

    /// Fetches one range, and writes the frames in it; returns where it came from.
    private func run(
        _ request: RangePlan.Request,
        _ bundles: BundleFiles,
        _ progress: Progress
    ) async throws(StageError) -> String {
        let bundle = tree.index.bundles[request.bundle]
        var mirrors = work.urls(of: bundle)
        var attempts = mirrors.count
        while true {
            attempts -= 1
            do throws(StageError) {
                return try await run(request, of: bundle, mirrors, bundles, progress)
            } catch .transfer(.wrongDigest) where attempts > 0 {
                // Another mirror may have what this one has not.
                mirrors.append(mirrors.removeFirst())
            }
        }
    }

    private func run(
        _ request: RangePlan.Request,
        of bundle: ContentIndex.Bundle,
        _ mirrors: [String],
        _ bundles: BundleFiles,
        _ progress: Progress
    ) async throws(StageError) -> String {
        let consumer = RangeConsumer(fetch: self, request: request, progress: progress)
        var fetch = work.request(for: mirrors, limit: ByteCount(Int64(request.range.count)))
        fetch.part = (request.range, bundle.size)
        fetch.take = { consumer.take($0) }
        fetch.backlog = progress.backlog
        var url = mirrors.first ?? ""
        do throws(StageError) {
            url = try await work.fetch(fetch).url
        } catch .transfer(.unacceptable(_, .ranges)) {
            let bundle = try await bundles.file(of: request.bundle)
            consumer.take(.began)
            var rest = request.range
            while !rest.isEmpty {
                let bytes = try await work.bytes(of: bundle, in: rest.prefix(1 << 20))
                guard !bytes.isEmpty else { break }
                rest = rest.dropFirst(bytes.count)
                progress.backlog.add(bytes.count)
                consumer.take(.bytes(bytes))
                await consumer.settle()
            }
        } catch {
            // What has come whole is written, and not asked for again.
            _ = try? await consumer.finish(url)
            throw error
        }
        try await consumer.finish(url)
        return url
    }

    /// Verifies, decompresses and writes a frame; returns how many bytes were written.
    fileprivate func write(
        _ position: Int,
        _ stored: [UInt8],
        _ decompressor: inout FrameDecompressor,
        _ cursor: inout DirectoryCursor
    ) throws(StageError) -> Int64 {
        let frame = tree.index.frames[position]
        var bytes = stored
        guard Digest(of: bytes) == frame.storedDigest else {
            throw .transfer(.wrongDigest(url: ""))
        }
        if frame.compressed != nil {
            do throws(FrameError) {
                bytes = try decompressor.decompress(bytes.span, to: frame.length)
            } catch {
                throw .index(reason: error.description)
            }
            guard Digest(of: bytes) == frame.digest else {
                throw .index(reason: "a frame decompresses to something else than it names")
            }
        }
        return try IndexedWork.storing { () throws(FileError) in
            try tree.write(position, bytes, except: done, &cursor)
        }
    }
}

/// Takes the bytes of one range as they come, and writes each frame as soon as it is whole.
private final class RangeConsumer: Sendable {
    private struct State: ~Copyable {
        var decompressor = FrameDecompressor()
        var cursor: DirectoryCursor
        /// What has come and is of no whole frame yet, from `start` of the bundle on.
        var bytes: [UInt8] = []
        var start: Int64 = 0
        /// The frame that is awaited, by its place in the request.
        var next = 0
        var isWritten: [Bool]
        var error: StageError?

        init(_ request: RangePlan.Request, in content: Directory) {
            cursor = DirectoryCursor(content)
            isWritten = [Bool](repeating: false, count: request.frames.count)
        }
    }

    private let fetch: FrameFetch
    private let request: RangePlan.Request
    private let progress: FrameFetch.Progress
    private let queue = DispatchQueue(label: "stagepack.frames")
    /// Only the jobs of `queue` use it, one after the other; the lock is never waited for.
    private let state: Mutex<State>

    init(fetch: FrameFetch, request: RangePlan.Request, progress: FrameFetch.Progress) {
        self.fetch = fetch
        self.request = request
        self.progress = progress
        state = Mutex(State(request, in: fetch.tree.content))
    }

    /// Takes what comes next, and waits for nothing.
    func take(_ piece: BodyPiece) {
        queue.async { [self] in state.withLock { consume(piece, &$0) } }
    }

    /// Waits until everything that was taken is written.
    ///
    /// - Throws: What went wrong; an error that blames `url` where frames are missing.
    func finish(_ url: String) async throws(StageError) {
        let error = await withCheckedContinuation { continuation in
            queue.async { [self] in
                continuation.resume(
                    returning: state.withLock { state -> StageError? in
                        let isWhole = state.isWritten.allSatisfy { $0 }
                        return state.error ?? (isWhole ? nil : .transfer(.wrongDigest(url: url)))
                    }
                )
            }
        }
        if case .transfer(.wrongDigest) = error { throw .transfer(.wrongDigest(url: url)) }
        if let error { throw error }
    }

    /// Waits until everything that was taken is done with.
    func settle() async {
        await withCheckedContinuation { continuation in
            queue.async { continuation.resume() }
        }
    }

    private func consume(_ piece: BodyPiece, _ state: inout State) {
        switch piece {
        case .began:
            state.bytes = []
            state.start = request.range.lowerBound
            state.next = 0
        case .bytes(let bytes):
            defer { progress.backlog.remove(bytes.count) }
            guard state.error == nil else { return }
            state.bytes += bytes
            let reused = progress.reused
            fetch.work.report(.received(reused + progress.receive(bytes.count), reused: reused))
            do throws(StageError) {
                try writeFrames(&state)
            } catch {
                state.error = error
            }
        }
    }

    /// Writes the frames that are whole.
    private func writeFrames(_ state: inout State) throws(StageError) {
        var used = 0
        while state.next < request.frames.count {
            let position = request.frames[state.next]
            let range = fetch.tree.index.frames[position].range
            let begin = Int(range.lowerBound - state.start)
            let end = Int(range.upperBound - state.start)
            used = min(begin, state.bytes.count)
            guard end <= state.bytes.count else { break }
            if !state.isWritten[state.next] {
                let stored = Array(state.bytes[begin..<end])
                let written = try fetch.write(
                    position,
                    stored,
                    &state.decompressor,
                    &state.cursor
                )
                state.isWritten[state.next] = true
                fetch.work.report(.unpacked(progress.write(written)))
            }
            state.next += 1
            used = end
        }
        state.bytes.removeFirst(used)
        state.start += Int64(used)
    }
}
