import FoundationEssentials
import Logging
import StageControl
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// Disk usage of each user, counted in ``UserStorage``.
extension Broker {
    /// Counts the files that an earlier run of the daemon left.
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

    /// Removes part files and upload copies by name; files that cannot be removed are left to the next sweep.
    ///
    /// Resumes tasks of the same user that waited for quota, except `exempt`.
    func removeFiles(_ names: [String], apart exempt: Int64? = nil) {
        release(store.discard(Removed(tasks: [], parts: names), of: 0, logger), apart: exempt)
    }

    /// Removes files from the count, and resumes tasks of their users that waited for quota, except `exempt`.
    func release(_ items: [HeldBytes.Item], apart exempt: Int64? = nil) {
        for user in storage.release(items)
        where state.endQuotaHolds(of: user, apart: exempt, at: .now) {
            turn()
        }
    }

    /// Removes finished downloads that the user has moved away from the count; returns whether there were any.
    func releaseMoved(of user: UInt32) async -> Bool {
        let (store, tasks) = (store, storage.staged(of: user))
        let gone = await withBlockingThread {
            // A file that cannot be checked still counts.
            tasks.filter { (try? store.isStaged($0, user: user)) == false }
        }
        release(gone.map { .staged($0) })
        return !gone.isEmpty
    }
}
