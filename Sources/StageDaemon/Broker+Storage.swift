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
}
