import FoundationEssentials
import Logging
import StageControl
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// Disk usage of each user, counted in ``UserStorage``.
extension TransferCoordinator {
    /// Counts the files that an earlier run of the daemon left, and notes the bytes that it has received of each download.
    func recountStorage() async throws(DaemonError) {
        let owners = try await journal.partOwners()
        let finished = try await journal.finishedTasks()
        let (files, storage) = (files, storage)
        let received = await withBlockingThread { () -> [Int64: ByteCount] in
            var received: [Int64: ByteCount] = [:]
            for (name, size) in files.partSizes() {
                guard let owner = owners[name] else { continue }
                storage.set(.part(name), to: size.all, of: owner.user)
                if let task = owner.task, size.content > 0 {
                    received[task] = ByteCount(size.content)
                }
            }
            for (user, tasks) in finished {
                files.countFinished(tasks, of: user) { task, bytes in
                    storage.set(.finished(task), to: bytes, of: user)
                }
            }
            return received
        }
        for (task, bytes) in received { state.noteReceived(bytes, of: task) }
    }

    /// Removes part files and upload copies by name; files that cannot be removed are left to the next start.
    ///
    /// Resumes tasks of the same user that waited for quota, except `exempt`.
    func removeFiles(_ names: [String], apart exempt: Int64? = nil) async {
        guard !names.isEmpty else { return }
        await discard(RemovedTasks(tasks: [], parts: names), of: 0, apart: exempt)
    }

    /// Removes the files of tasks that have ended or were removed from the journal, as ``removeFiles(_:apart:)`` does.
    func discard(_ removed: RemovedTasks, of user: UInt32, apart exempt: Int64? = nil) async {
        let (files, logger) = (files, logger)
        // On a blocking thread: there may be a thousand files, in a directory that the user controls, and a record beside
        // each, whose size a server determines.
        let gone = await withBlockingThread { files.discard(removed, of: user, logger: logger) }
        release(gone, apart: exempt)
    }

    /// Removes files from the count, and resumes tasks of their users that waited for quota, except `exempt`.
    func release(_ items: [DiskQuota.Item], apart exempt: Int64? = nil) {
        for user in storage.release(items)
        where state.endQuotaWaits(of: user, apart: exempt, at: readClock()) {
            runScheduler()
        }
    }

    /// Removes finished downloads that the user has moved away from the count; returns whether there were any.
    func releaseMoved(of user: UInt32) async -> Bool {
        let (files, tasks) = (files, storage.finishedDownloads(of: user))
        // Waits for no mounted file system, so it does not count as a call that waits for one.
        let gone = await withBlockingThread {
            // A file that cannot be checked still counts.
            tasks.filter { (try? files.hasFinished($0, user: user)) == false }
        }
        release(gone.map { .finished($0) })
        return !gone.isEmpty
    }
}

/// The disk of the state directory.
extension TransferCoordinator {
    /// Stops scheduling after the journal could not be written.
    func waitForSpace(after error: DaemonError) { waitForSpace(problem: error.diskProblem) }

    /// Stops scheduling until the disk has space again, or can be written.
    ///
    /// - Parameter problem: The error of a write; `nil` if the disk is full or read-only.
    func waitForSpace(problem: String?) {
        let free = freeSpace
        // SQLite's errors do not tell a read-only file system from a full one.
        let problem = problem ?? readOnlyProblem
        let isWaiting = state.scheduler.fullUntil != nil
        let isNew = state.waitForSpace(free: free, problem: problem, at: readClock())
        if !isWaiting { sendAllPendingReasons() }
        guard isNew else { return }
        var metadata: Logger.Metadata = [
            "file.path": "\(files.root.path)", "disk.free": "\(free)",
            "disk.reserve": "\(state.configuration.reserve)",
        ]
        if let problem { metadata["error"] = "\(problem)" }
        logger.warning(
            problem == nil
                ? "The disk is full, and all transfers wait"
                : "The disk cannot be written, and all transfers wait",
            metadata: metadata
        )
    }

    /// Resumes scheduling if transfers wait for the disk and it has space; logs it once the disk stops them no more.
    func checkSpace() {
        if state.isSpaceDue(at: readClock()) {
            state.checkSpace(free: freeSpace, at: readClock())
            if state.scheduler.fullUntil == nil { sendAllPendingReasons() }
        }
        guard state.endDiskWait(at: readClock()) else { return }
        logger.notice(
            "Transfers continue after they waited for the disk",
            metadata: ["disk.free": "\(freeSpace)"]
        )
    }

    /// Error of a write to the state directory if its file system is read-only; `nil` otherwise.
    private var readOnlyProblem: String? {
        guard files.root.isOnReadOnlyFileSystem else { return nil }
        return "\(FileError("write", path: files.root.path, errno: .readOnlyFileSystem))"
    }

    private var freeSpace: ByteCount {
        // If the free space is unknown, assume that there is enough: writing will show it.
        (try? files.root.freeSpace().bytes).map { ByteCount($0) } ?? state.configuration.reserve
    }
}
