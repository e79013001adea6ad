import StageSystem
import SystemPackage

/// Tells others that somebody writes into a store, while the value lives.
///
/// It makes nobody wait: what is written has names of its own until it is whole. But hidden files that
/// nobody works on were left by runs that were killed, as large as what they had made, and they are removed
/// by the next run that is alone.
struct StoreLock: ~Copyable {
    private let lock: FileLock?

    /// Removes what earlier runs have left, if nobody else is at work, and takes the lock.
    ///
    /// Where the file system has no such locks, nothing is removed.
    init(_ store: Directory, bundles: Directory) throws(FileError) {
        do throws(FileError) {
            if let alone = try FileLock.attempt(directory: bundles, .exclusive) {
                // What cannot be removed now is left to a later run.
                _ = try? Self.sweep(store)
                _ = consume alone
            }
            // Somebody else may be removing the same just now, which is over soon.
            lock = try FileLock.wait(forDirectory: bundles, .shared)
        } catch {
            guard [.badFileDescriptor, .noLocks, .notSupported].contains(error.errno) else {
                throw error
            }
            lock = nil
        }
    }

    private static func sweep(_ store: Directory) throws(FileError) {
        for (folder, prefix) in [("b", ".bundle."), ("d", ".deltas.")] {
            guard let directory = try store.directory(FilePath(folder)) else { continue }
            for entry in try directory.entries()
            where entry.kind == .file && entry.name.string.hasPrefix(prefix) {
                try directory.remove(entry.name)
            }
        }
    }
}
