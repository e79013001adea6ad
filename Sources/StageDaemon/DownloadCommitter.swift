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
actor DownloadCommitter {
    /// Download whose content is complete and verified.
    struct CompletedDownload: Sendable {
        var task: Int64
        var user: UInt32
        /// Name of the part file.
        var part: String
        /// Name of the file with the complete content, beside the part file.
        var file: FilePath.Component
        /// The part file that the download has filled; `nil` for a copy, which was never synced.
        var content: PartialFile?
        /// Event that reports the end of the task.
        var event: SessionEvent
    }

    private let files: TransferFiles
    private let journal: Journal
    private let logger: Logger
    private var waiting:
        [(item: CompletedDownload, done: CheckedContinuation<Result<Void, DaemonError>, Never>)] =
            []
    private var isWorking = false

    init(files: TransferFiles, journal: Journal, logger: Logger) {
        self.files = files
        self.journal = journal
        self.logger = logger
    }

    /// Commits a download; returns once its file is durable in the user's directory.
    ///
    /// The end of the task is not recorded yet.
    func commit(_ item: CompletedDownload) async throws(DaemonError) {
        let result = await withCheckedContinuation { done in
            waiting.append((item, done))
            guard !isWorking else { return }
            isWorking = true
            // The only unstructured task here. It serves all waiting callers, and ends when none is left.
            Task { await self.commitWaiting() }
        }
        try result.get()
    }

    private func commitWaiting() async {
        while !waiting.isEmpty {
            let batch = waiting
            waiting = []
            var errors: [Int64: DaemonError] = [:]
            do throws(DaemonError) {
                errors = try await commit(batch.map(\.item))
            } catch {
                for entry in batch { errors[entry.item.task] = error }
            }
            for entry in batch {
                let error = errors[entry.item.task]
                if let error {
                    var metadata = error.metadata
                    metadata["task.id"] = "\(entry.item.task)"
                    logger.error("A download could not be committed", metadata: metadata)
                }
                entry.done.resume(returning: error.map { .failure($0) } ?? .success(()))
            }
        }
        isWorking = false
    }

    /// Commits a batch; returns the errors that concern single files.
    private func commit(
        _ items: [CompletedDownload]
    ) async throws(DaemonError) -> [Int64: DaemonError] {
        let files = files
        let lost = await withBlockingThread { files.synchronize(items) }
        let durable = items.filter { lost[$0.task] == nil }
        try await journal.recordVerified(durable)
        let errors = await withBlockingThread { files.moveToUsers(durable) }
        return lost.merging(errors) { lost, _ in lost }
    }
}

extension TransferFiles {
    /// Syncs the content of completed downloads, and discards bytes that may be lost; returns the errors by task.
    fileprivate func synchronize(
        _ items: [DownloadCommitter.CompletedDownload]
    ) -> [Int64: DaemonError] {
        // One sync for many files costs less. If it fails, each file is synced alone, to find the affected ones.
        let areWritten = items.count > 4 && (try? parts.synchronizeFileSystem()) != nil
        var errors: [Int64: DaemonError] = [:]
        for item in items {
            do throws(FileError) {
                if let content = item.content {
                    try content.synchronize(isWritten: areWritten)
                } else {
                    try synchronizeCopy(item.file, isWritten: areWritten)
                }
            } catch {
                errors[item.task] = .file(error)
            }
        }
        return errors
    }

    private func synchronizeCopy(
        _ name: FilePath.Component,
        isWritten: Bool
    ) throws(FileError) {
        do throws(FileError) {
            guard let file = try parts.file(reading: FilePath(name)) else { return }
            if isWritten { try file.checkWritten() } else { try file.synchronize() }
        } catch {
            // A later sync would succeed although bytes are lost. The error of the sync is the one to report.
            _ = try? parts.remove(name)
            throw error
        }
    }

    /// Moves files into their users' directories and syncs these.
    ///
    /// One user's error does not affect other users.
    ///
    /// - Returns: Errors by task.
    func moveToUsers(_ items: [DownloadCommitter.CompletedDownload]) -> [Int64: DaemonError] {
        var errors: [Int64: DaemonError] = [:]
        for (user, items) in Dictionary(grouping: items, by: \.user) {
            for item in items {
                do throws(FileError) {
                    _ = try moveToUser(item.file, as: item.task, for: user)
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
