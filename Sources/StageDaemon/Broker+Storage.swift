import FoundationEssentials
import Logging
import StageControl
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// Counts what each user has on disk, in ``UserStorage``.
extension Broker {
    /// Counts what an earlier run of the daemon left.
    func recountStorage() async throws(DaemonError) {
        let owners = try await journal.partOwners()
        let finished = try await journal.finishedTasks()
        let (store, storage) = (store, storage)
        await withBlockingThread {
            store.countParts { name, bytes in
                if let user = owners[name] { storage.set(.part(name), to: bytes, of: user) }
            }
            for (user, tasks) in finished {
                store.countStaged(tasks, of: user) { task, bytes in
                    storage.set(.staged(task), to: bytes, of: user)
                }
            }
        }
    }

    /// Removes what belongs to names among the parts and the copies; what is left is swept later.
    ///
    /// Transfers of the same user that waited for their bytes go on, apart from one.
    func removeFiles(_ names: [String], apart exempt: Int64? = nil) {
        release(store.discard(Removed(tasks: [], parts: names), of: 0, logger), apart: exempt)
    }

    /// Counts files no longer; transfers that waited for their bytes go on, apart from one.
    func release(_ items: [HeldBytes.Item], apart exempt: Int64? = nil) {
        for user in storage.release(items)
        where state.endQuotaHolds(of: user, apart: exempt, at: .now) {
            turn()
        }
    }

    /// Counts finished downloads no longer that their user has moved away, and returns whether there
    /// were any.
    func releaseMoved(of user: UInt32) async -> Bool {
        let (store, tasks) = (store, storage.staged(of: user))
        let gone = await withBlockingThread {
            // What cannot be looked at counts.
            tasks.filter { (try? store.isStaged($0, user: user)) == false }
        }
        release(gone.map { .staged($0) })
        return !gone.isEmpty
    }

    /// Counts a file before it is written.
    ///
    /// - Throws: ``ControlRefusal`` with ``ControlRefusal/Code/quota`` or ``ControlRefusal/Code/storage``.
    func reserve(
        _ item: HeldBytes.Item,
        _ size: Int64,
        of user: UInt32
    ) async throws(ControlRefusal) {
        var verdict = storage.grow(item, to: size, of: user)
        if verdict == .later, await releaseMoved(of: user) {
            verdict = storage.grow(item, to: size, of: user)
        }
        switch verdict {
        case .granted: return
        case .later:
            throw ControlRefusal(
                .quota,
                "your files in the daemon have too many bytes together: move finished downloads away"
            )
        case .never(let limit):
            throw ControlRefusal(.quota, "one user may have \(ByteCount(limit)) in the daemon")
        case .full:
            throw ControlRefusal(.storage, "the disk is full: make room and repeat the request")
        }
    }
}

extension TransferStore {
    /// Tells of the files of partial downloads and of copies, with the names that the journal knows.
    fileprivate func countParts(_ tell: (String, Int64) -> Void) {
        var sizes: [String: Int64] = [:]
        for directory in [parts, snapshots] {
            // What cannot be listed cannot be counted; sums of what is there do not overflow.
            for entry in (try? directory.entries()) ?? [] {
                let name = String(entry.name.string.prefix { $0 != "." })
                let size = (try? directory.status(FilePath(entry.name)))?.size ?? 0
                sizes[name] = min((sizes[name] ?? 0) + min(size, 1 << 50), 1 << 50)
            }
        }
        for (name, size) in sizes { tell(name, size) }
    }

    /// Tells of the finished downloads of a user that were not moved away: those of `tasks`, which are
    /// looked for by their names, since the user may make any number of others.
    fileprivate func countStaged(
        _ tasks: [Int64],
        of user: UInt32,
        _ tell: (Int64, Int64) -> Void
    ) {
        // A user without finished downloads has no directory; what cannot be looked at is not counted.
        guard let directory = try? openDirectory(of: user) else { return }
        for task in tasks {
            guard let status = try? directory.status(FilePath("\(task)")), status.kind == .file
            else { continue }
            tell(task, status.size)
        }
    }
}
