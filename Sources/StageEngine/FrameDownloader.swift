import StageContainer
import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import StageTransfer
import Synchronization

/// Fetches frames from a delta set and from bundles, several ranges at a time, and writes each frame into its
/// files.
struct FrameDownloader: Sendable {
    let source: IndexSource
    let tree: IndexedTree
    /// The entries that need no frames, by position.
    let done: [Bool]
    /// The delta set that can produce some of the frames.
    let deltas: DeltaSource?
    /// The maximum total size of complete bundles to download if a server does not support ranges; `nil` for
    /// no limit.
    var limit: ByteCount?
    /// Counts the bytes of a failed fetch, which another way may replace.
    var failures: FailedFetches?

    /// The number of ranges that are requested or written concurrently.
    private static let width = 6
    /// The number of these ranges that may be ranges of the delta set, since each holds a window in memory.
    private static let deltaWidth = 2

    /// The result of a fetch.
    struct Outcome: Sendable {
        var received: ByteCount
        /// The URL of one of the objects; `nil` if nothing was requested.
        var source: String?
        /// Positions in the index of the frames that their delta frames failed to produce.
        var undecodedFrames: [Int]
    }

    /// Fetches and writes `frames`, positions in the index.
    ///
    /// Needs no space beside the files: of a server without ranges, it receives complete bundles and writes the needed
    /// frames as they arrive.
    func run(_ frames: [Int]) async throws(StageError) -> Outcome {
        let wanted = tree.index.storedLength(of: frames)
        let progress = FrameDownloadProgress(
            reused: max(.zero, tree.index.storedSize - wanted),
            report: source.work.report
        )
        let acceptsWhole = limit.map { tree.index.bundleSize(of: frames) <= $0 } ?? true
        let queue = Queue(frames, of: tree.index, deltas: deltas)
        do throws(StageError) {
            try await run(queue, acceptingWhole: acceptsWhole, progress: progress)
            let unranged = progress.framesWithoutRanges
            if !unranged.isEmpty {
                let whole = Queue(bundlesOf: unranged, in: tree.index)
                try await run(whole, acceptingWhole: true, progress: progress)
            }
        } catch {
            failures?.add(progress.outcome.received)
            throw error
        }
        return progress.outcome
    }

    /// Runs the jobs of a queue, several at a time.
    private func run(
        _ queue: Queue,
        acceptingWhole acceptsWhole: Bool,
        progress: FrameDownloadProgress
    ) async throws(StageError) {
        let failure = await withTaskGroup(of: StageError?.self) { group in
            for number in 0..<Self.width {
                group.addTask {
                    do throws(StageError) {
                        while let job = queue.next(takesDeltas: number < Self.deltaWidth) {
                            try await run(job, acceptingWhole: acceptsWhole, progress: progress)
                        }
                        return nil
                    } catch {
                        return error
                    }
                }
            }
            var failure: StageError?
            for await error in group where failure == nil && error != nil {
                failure = error
                group.cancelAll()
            }
            return failure
        }
        if let failure { throw failure }
    }

    /// A range to request.
    fileprivate enum Job: Sendable {
        case deltas(RangePlan.Request, DeltaSource)
        case range(RangePlan.Request)
        case wholeBundle(RangePlan.Request)
    }

    /// The ranges that have not been requested.
    private final class Queue: Sendable {
        private let left: Mutex<(deltas: [Job], bundles: [Job])>

        init(_ frames: [Int], of index: ContentIndex, deltas source: DeltaSource?) {
            var plain = frames
            var deltas: [Job] = []
            if let source {
                deltas = source.plan(for: frames).requests.map { .deltas($0, source) }
                let made = Set(source.set.frames.lazy.map(\.position))
                plain.removeAll { made.contains($0) }
            }
            let bundles = RangePlan(plain, of: index).requests.map { Job.range($0) }
            left = Mutex((deltas.reversed(), bundles.reversed()))
        }

        init(bundlesOf frames: [Int], in index: ContentIndex) {
            let plan = RangePlan(bundlesOf: frames, in: index)
            left = Mutex(([], plan.requests.reversed().map { Job.wholeBundle($0) }))
        }

        /// Removes and returns the next range.
        ///
        /// Ranges of the delta set come first, so that frames it fails to produce are known early.
        func next(takesDeltas: Bool) -> Job? {
            left.withLock { left in
                (takesDeltas ? left.deltas.popLast() : nil) ?? left.bundles.popLast()
            }
        }
    }

    private func run(
        _ job: Job,
        acceptingWhole acceptsWhole: Bool,
        progress: FrameDownloadProgress
    ) async throws(StageError) {
        switch job {
        case .deltas(let request, let deltas):
            try await run(request, of: deltas, progress: progress)
        case .range(let request):
            try await run(
                request,
                isWhole: false,
                acceptingWhole: acceptsWhole,
                progress: progress
            )
        case .wholeBundle(let request):
            try await run(request, isWhole: true, acceptingWhole: false, progress: progress)
        }
    }

    /// Fetches a range of a delta set, and writes the frames that it produces.
    private func run(
        _ request: RangePlan.Request,
        of deltas: DeltaSource,
        progress: FrameDownloadProgress
    ) async throws(StageError) {
        let consumer = RangeConsumer(
            fetch: self,
            request: request,
            deltas: deltas,
            progress: progress
        )
        do throws(StageError) {
            let part = (request.range, deltas.size)
            try await fetch(part, from: deltas.mirrors, into: consumer, progress: progress)
        } catch {
            // If a write error has ended the transfer, the error of the transfer is a cancellation.
            if let localError = await consumer.localError() { throw localError }
            // Bundles provide the frames that have not arrived.
            guard case .transfer = error else { throw error }
        }
        progress.addUndecoded(try await consumer.finish())
    }

    /// Fetches a range of a bundle, or all of it, from the first mirror with the right bytes, and writes its frames.
    private func run(
        _ request: RangePlan.Request,
        isWhole: Bool,
        acceptingWhole acceptsWhole: Bool,
        progress: FrameDownloadProgress
    ) async throws(StageError) {
        let consumer = RangeConsumer(
            fetch: self,
            request: request,
            deltas: nil,
            isWhole: isWhole,
            progress: progress
        )
        var mirrors = source.urls(of: tree.index.bundles[request.bundle])
        var attempts = mirrors.count
        while true {
            attempts -= 1
            do throws(StageError) {
                // A server without ranges sends the bundle from its beginning again.
                let range = await isWhole ? request.range : consumer.remainingRange()
                return try await run(
                    request,
                    range: range,
                    into: consumer,
                    from: mirrors,
                    progress: progress
                )
            } catch .transfer(.unacceptable(_, .ranges)) where acceptsWhole {
                // Bundles are requested whole after all ranges, so that each is received once for all of its frames. Those that an error
                // in a piece concerns are among them.
                progress.addWithoutRanges((try? await consumer.finish()) ?? request.frames)
                return
            } catch .transfer(.wrongDigest) where attempts > 0 {
                // Tries the next mirror, whose copy may be intact.
                await consumer.returnToUnwrittenFrames()
                mirrors.append(mirrors.removeFirst())
            }
        }
    }

    /// Fetches what a consumer still needs of a bundle, and writes the frames in it.
    private func run(
        _ request: RangePlan.Request,
        range: Range<Int64>,
        into consumer: RangeConsumer,
        from mirrors: [String],
        progress: FrameDownloadProgress
    ) async throws(StageError) {
        var url = mirrors.first ?? ""
        do throws(StageError) {
            let part = (range, tree.index.bundles[request.bundle].size)
            url = try await fetch(part, from: mirrors, into: consumer, progress: progress)
        } catch {
            // If a write error has ended the transfer, the error of the transfer is a cancellation.
            if let localError = await consumer.localError() { throw localError }
            throw error
        }
        do throws(StageError) {
            guard try await consumer.finish().isEmpty else {
                throw .transfer(.wrongDigest(url: url))
            }
        } catch .transfer(.wrongDigest) {
            throw .transfer(.wrongDigest(url: url))
        }
        progress.note(source: url)
    }

    /// Fetches a range, passing the bytes to `consumer` as they arrive, and returns the URL that they came
    /// from.
    @discardableResult
    private func fetch(
        _ part: (Range<Int64>, Int64),
        from mirrors: [String],
        into consumer: RangeConsumer,
        progress: FrameDownloadProgress
    ) async throws(StageError) -> String {
        var fetch = source.request(for: mirrors, limit: ByteCount(Int64(part.0.count)))
        fetch.part = part
        fetch.take = { consumer.take($0) }
        fetch.isWanted = { consumer.isWanted }
        fetch.remainingRange = { await consumer.remainingRange() }
        fetch.receiveWindow = progress.receiveWindow
        return try await source.fetch(fetch).url
    }
}

/// The bytes that fetches of frames received before they failed.
final class FailedFetches: Sendable {
    private let count = Mutex(ByteCount.zero)

    /// The total number of received bytes.
    var received: ByteCount { count.withLock { $0 } }

    /// Adds the received bytes of a fetch that failed.
    func add(_ received: ByteCount) { count.withLock { $0 += received } }
}

/// Progress of fetching frames.
final class FrameDownloadProgress: Sendable {
    private struct State {
        var received: Int64 = 0
        /// The stored bytes of the pack that are on this machine.
        var present: Int64
        var reused: Int64
        var written: Int64 = 0
        var undecodedFrames: [Int] = []
        var framesWithoutRanges: [Int] = []
        var source: String?
    }

    private let state: Mutex<State>
    /// Called under the lock, so that reported numbers never decrease.
    private let report: @Sendable (StagingEvent) -> Void
    /// Limits the bytes that are received but not yet written.
    let receiveWindow = ReceiveWindow(limit: .mebibytes(8))

    init(reused: ByteCount, report: @escaping @Sendable (StagingEvent) -> Void) {
        state = Mutex(State(present: reused.rawValue, reused: reused.rawValue))
        self.report = report
        report(.received(reused, reused: reused))
    }

    /// Counts bytes of ranges of bundles that were received.
    func receive(_ count: Int) {
        state.withLock { state in
            state.received += Int64(count)
            state.present += Int64(count)
            report(state)
        }
    }

    /// Counts received bytes of a delta set or a complete bundle; they add to progress only with the frames made of them.
    func receive(ofOther count: Int) { state.withLock { $0.received += Int64(count) } }

    /// Counts a frame that was received with a complete bundle.
    func countReceived(_ frame: ContentIndex.Frame) {
        state.withLock { state in
            state.present += Int64(frame.storedLength)
            report(state)
        }
    }

    /// Counts a frame that was produced from a delta, without its own bytes.
    func countDecoded(_ frame: ContentIndex.Frame) {
        state.withLock { state in
            state.present += Int64(frame.storedLength)
            state.reused += Int64(frame.storedLength)
            report(state)
        }
    }

    /// Counts bytes that were written.
    func write(_ count: Int64) {
        state.withLock { state in
            state.written += count
            report(.unpacked(ByteCount(state.written)))
        }
    }

    /// Adds frames that their deltas failed to produce.
    func addUndecoded(_ frames: [Int]) { state.withLock { $0.undecodedFrames += frames } }

    /// Adds frames of bundles whose servers do not support ranges.
    func addWithoutRanges(_ frames: [Int]) {
        state.withLock { $0.framesWithoutRanges += frames }
    }

    /// The frames to be received with complete bundles, since their servers do not support ranges.
    var framesWithoutRanges: [Int] { state.withLock { $0.framesWithoutRanges } }

    /// Records the URL that bytes came from.
    func note(source: String) { state.withLock { $0.source = source } }

    /// The result of the fetch so far.
    var outcome: FrameDownloader.Outcome {
        state.withLock { state in
            FrameDownloader.Outcome(
                received: ByteCount(state.received),
                source: state.source,
                undecodedFrames: state.undecodedFrames
            )
        }
    }

    private func report(_ state: State) {
        report(.received(ByteCount(state.present), reused: ByteCount(state.reused)))
    }
}

extension IndexSource {
    /// Returns the URLs of a bundle, in order of preference.
    fileprivate func urls(of bundle: ContentIndex.Bundle) -> [String] {
        work.manifest.manifest.urls(
            forBundle: bundle.digest,
            of: reference,
            manifestURL: work.manifest.record.resolvedURL
        )
    }
}
