import Logging
import StageControl
import StageSystem
import StageTransfer
import Synchronization
import SystemPackage

/// Commits finished downloads in crash-safe order.
///
/// Per batch: (1) sync the content, (2) record the tasks as verified, with the file names and events, (3) rename the
/// files into the users' directories and sync these. The caller then records the tasks as ended. Downloads that
/// finish while a batch waits for the disk form the next batch, so a thousand small files cost a few syncs.
actor Finisher {
    /// Download whose content is complete and verified.
    struct Item: Sendable {
        var task: Int64
        var user: UInt32
        /// Name of the part file, and name of its file with the complete content.
        var part: String
        var file: FilePath.Component
        /// Event that reports the end of the task.
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

    /// Commits a download; returns once its file is durable in the user's directory.
    ///
    /// The end of the task is not recorded yet.
    func finish(_ item: Item) async throws(DaemonError) {
        let result = await withCheckedContinuation { done in
            waiting.append((item, done))
            guard !isWorking else { return }
            isWorking = true
            // The only unstructured task here. It serves all waiting callers, and ends when none is left.
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
                        "A download could not be committed",
                        metadata: ["task.id": "\(entry.item.task)", "error": "\(error)"]
                    )
                }
                entry.done.resume(returning: error.map { .failure($0) } ?? .success(()))
            }
        }
        isWorking = false
    }

    /// Commits a batch; returns the errors that concern single files.
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
    /// Moves files into their users' directories and syncs these.
    ///
    /// One user's error does not affect other users.
    ///
    /// - Returns: Errors by task.
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
