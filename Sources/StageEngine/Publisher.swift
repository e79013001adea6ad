import StageContainer
import StageModel
import StageSystem

/// Publishes packs that end at about the same time together.
///
/// Waiting for the disk is most of the cost, and one wait serves any number of packs: while one batch
/// is being written, the next gathers.
actor Publisher {
    private let container: Container
    private var waiting: [Waiting] = []
    private var isPublishing = false

    private struct Waiting {
        var area: StagingArea
        var record: StagedPack
        var continuation: CheckedContinuation<ContainerError?, Never>
    }

    init(container: Container) {
        self.container = container
    }

    /// Makes the pack visible, and returns when it is durable.
    func publish(_ area: StagingArea, _ record: StagedPack) async throws(ContainerError) {
        let error = await withCheckedContinuation { continuation in
            waiting.append(Waiting(area: area, record: record, continuation: continuation))
            guard !isPublishing else { return }
            isPublishing = true
            Task { await publishWaiting() }
        }
        if let error { throw error }
    }

    private func publishWaiting() async {
        while !waiting.isEmpty {
            let batch = waiting
            waiting = []
            let error = await commit(batch.map { ($0.area, $0.record) })
            for one in batch { one.continuation.resume(returning: error) }
        }
        isPublishing = false
    }

    private func commit(_ packs: [(area: StagingArea, record: StagedPack)]) async -> ContainerError?
    {
        let container = container
        do throws(ContainerError) {
            try await withBlockingThread { () throws(ContainerError) in
                try container.publish(packs)
            }
            return nil
        } catch {
            return error
        }
    }
}
