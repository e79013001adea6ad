import Logging
import StageControl
import StageSystem
import StageTransfer
import Synchronization
import SystemPackage

/// Gives complete content its place, so that it is there after any crash, and says so once.
///
/// ``transfers.md`` has the order: the bytes are on disk; the journal says that they are good (P5); the
/// file gets its name, and the directory is on disk; the journal says so, with the event (P6). What ends
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
            let result: Result<Void, DaemonError>
            do throws(DaemonError) {
                try await place(batch.map(\.item))
                result = .success(())
            } catch {
                logger.error("Files could not be staged", metadata: ["error": "\(error)"])
                result = .failure(error)
            }
            for entry in batch { entry.done.resume(returning: result) }
        }
        isWorking = false
    }

    /// P5 and the renaming of P6.
    private func place(_ items: [Item]) async throws(DaemonError) {
        let store = store
        try await onDisk { () throws(FileError) in
            if items.count > 4 { return try store.parts.synchronizeFileSystem() }
            for item in items {
                try store.parts.file(reading: FilePath(item.file))?.synchronize()
            }
        }
        try await journal.verified(items.map { ($0.task, $0.event) })
        try await onDisk { () throws(FileError) in try store.place(items) }
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
    /// Gives files their places, and waits until these are on disk.
    func place(_ items: [Finisher.Item]) throws(FileError) {
        for item in items { _ = try stage(item.file, as: item.task, for: item.user) }
        for user in Set(items.map(\.user)) { try directory(of: user).synchronize() }
        for item in items { try removeFiles(of: item.part) }
    }
}
