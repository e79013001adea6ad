import StageContainer
import StageModel
import StageSystem

/// Publishes packs that are ready at about the same time together.
///
/// Syncing to disk is most of the cost, and one sync serves a whole batch: while one batch is written, the
/// next one collects.
actor Publisher {
    private let container: Container
    private var waiting: [Waiting] = []
    private var isPublishing = false

    private struct Waiting {
        var area: StagingArea
        var record: StagedPack
        var continuation: CheckedContinuation<Result<Void, StageError>, Never>
    }

    init(container: Container) {
        self.container = container
    }

    /// Publishes the pack, and returns when that is durable.
    nonisolated func publish(_ pack: consuming PublishablePack) async throws(StageError) {
        let (area, record) = (pack.area, pack.record)
        try await publish(area, as: record)
    }

    private func publish(_ area: StagingArea, as record: StagedPack) async throws(StageError) {
        let result = await withCheckedContinuation { continuation in
            waiting.append(Waiting(area: area, record: record, continuation: continuation))
            guard !isPublishing else { return }
            isPublishing = true
            Task { await publishWaiting() }
        }
        try result.get()
    }

    private func publishWaiting() async {
        while !waiting.isEmpty {
            let batch = waiting
            waiting = []
            let packs = batch.map { (area: $0.area, record: $0.record) }
            let results = await withBlockingThread { [container] in container.publish(packs) }
            for (pack, result) in zip(batch, results) {
                pack.continuation.resume(returning: result.mapError(StageError.container))
            }
        }
        isPublishing = false
    }
}
