import Logging
import StageControl
import StageSystem
import StageTransfer
import Synchronization
import SystemPackage

/// Gives complete content its place, so that it is there after any crash, and says so once.
///
/// The order: the bytes are on disk; the journal says that they are good; the file gets its name, and the
/// directory is on disk; the journal says so, with the event. What ends
/// while one batch waits for the disk forms the next one, so a thousand small files cost a few waits.
actor Finisher {
    /// Content that is complete and good.
    struct Item: Sendable {
        var task: Int64
        var user: UInt32
        /// The name of its part file, and of the file of the current generation.
        var part: String
        var file: FilePath.Component
        /// What is to be said.
        var event: SessionEvent
    }

    private let store: TransferStore
    private let journal: Journal
    private let logger: Logger
    private var waiting:
        [(item: Item, done: CheckedContinuation<Result<Void, DaemonError>, Never>)] = []
    private var isWorking = false

    init(store: TransferStore, journal: Journal, logger: Logger) {
        self.store = store
        self.journal = journal
        self.logger = logger
    }

    /// Gives content its place, and returns once that is on disk, but not yet said.
    func finish(_ item: Item) async throws(DaemonError) {
        let result = await withCheckedContinuation { done in
            waiting.append((item, done))
            guard !isWorking else { return }
            isWorking = true
            // The one unstructured task here: it lasts until nothing waits, whoever came first.
            Task { await self.work() }
        }
        try result.get()
    }

    private func work() async {
        while !waiting.isEmpty {
            let batch = waiting
            waiting = []
            var errors: [Int64: DaemonError] = [:]
            do throws(DaemonError) {
                errors = try await place(batch.map(\.item))
            } catch {
                for entry in batch { errors[entry.item.task] = error }
            }
            for entry in batch {
                let error = errors[entry.item.task]
                if let error {
                    logger.error(
                        "A file could not be staged",
                        metadata: ["task.id": "\(entry.item.task)", "error": "\(error)"]
                    )
                }
                entry.done.resume(returning: error.map { .failure($0) } ?? .success(()))
            }
        }
        isWorking = false
    }

    /// Has the journal say that content is good, then gives it its place; returns what went wrong with single files.
    private func place(_ items: [Item]) async throws(DaemonError) -> [Int64: DaemonError] {
        let store = store
        try await onDisk { () throws(FileError) in
            if items.count > 4 { return try store.parts.synchronizeFileSystem() }
            for item in items {
                try store.parts.file(reading: FilePath(item.file))?.synchronize()
            }
        }
        try await journal.verified(items)
        return await withBlockingThread { store.place(items) }
    }

    private func onDisk(
        _ body: @escaping @Sendable () throws(FileError) -> Void
    ) async throws(DaemonError) {
        do throws(FileError) {
            try await withBlockingThread(body)
        } catch {
            throw .file(error)
        }
    }
}

extension TransferStore {
    /// Gives files their places, and waits until these are on disk; one user's trouble with theirs is
    /// nobody else's.
    ///
    /// - Returns: What went wrong, by task.
    func place(_ items: [Finisher.Item]) -> [Int64: DaemonError] {
        var errors: [Int64: DaemonError] = [:]
        for (user, items) in Dictionary(grouping: items, by: \.user) {
            for item in items {
                do throws(FileError) {
                    _ = try stage(item.file, as: item.task, for: user)
                } catch {
                    errors[item.task] = .file(error)
                }
            }
            do throws(FileError) {
                try directory(of: user).synchronize()
                for item in items where errors[item.task] == nil { try removeFiles(of: item.part) }
            } catch {
                for item in items { errors[item.task] = errors[item.task] ?? .file(error) }
            }
        }
        return errors
    }
}
