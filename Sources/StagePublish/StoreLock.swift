import StageSystem
import SystemPackage

/// Tells others that a process writes into a store, while the value lives.
///
/// It makes others wait for a sweep alone: what is written has names of its own until it is whole. But hidden
/// files that no process works on were left by runs that were killed, as large as what they had made, and they
/// are removed by the next run that is alone.
struct StoreLock: ~Copyable {
    private let lock: LockFile?

    /// The name of the lock file, in the store.
    private static let name: FilePath.Component = ".lock"
    /// The time that a sweep of another process may take.
    private static let patience = Duration.seconds(30)

    /// Removes what earlier runs have left, if no other process is at work, and takes the lock.
    ///
    /// Where the file system has no such locks, nothing is removed.
    ///
    /// - Throws: ``FileError`` of which `isHeldByOthers` is true if another process sweeps for too long.
    init(_ store: Directory) async throws(FileError) {
        do throws(FileError) {
            if let alone = try LockFile.attempt(Self.name, in: store, .exclusive) {
                // What cannot be removed now is left to a later run.
                _ = try? Self.sweep(store)
                _ = consume alone
            }
            lock = try await LockFile.wait(
                for: Self.name,
                in: store,
                .shared,
                patience: Self.patience
            )
        } catch {
            guard Self.isWithoutLocks(error) else { throw error }
            lock = nil
        }
    }

    /// Waits until no other process is at work, removes what killed runs have left, and keeps others out.
    ///
    /// - Throws: ``FileError`` of which `isHeldByOthers` is true if others work for too long.
    init(alone store: Directory) async throws(FileError) {
        do throws(FileError) {
            lock = try await LockFile.wait(
                for: Self.name,
                in: store,
                .exclusive,
                patience: Self.patience
            )
            // What cannot be removed now is left to a later run.
            _ = try? Self.sweep(store)
        } catch {
            guard Self.isWithoutLocks(error) else { throw error }
            lock = nil
        }
    }

    /// Whether the file system has no such locks.
    private static func isWithoutLocks(_ error: FileError) -> Bool {
        [.badFileDescriptor, .noLocks, .notSupported].contains(error.errno)
    }

    private static func sweep(_ store: Directory) throws(FileError) {
        for draft in StoreDraft.allCases {
            guard let directory = try store.directory(FilePath(draft.folder)) else { continue }
            for entry in try directory.entries()
            where entry.kind == .file && entry.name.string.hasPrefix(draft.prefix) {
                try directory.remove(entry.name)
            }
        }
    }
}

/// A kind of object that has a hidden name in its folder of the store until all of it is there.
enum StoreDraft: CaseIterable {
    case archive, bundle, deltas

    /// The folder of the store.
    var folder: String {
        switch self {
        case .archive: "a"
        case .bundle: "b"
        case .deltas: "d"
        }
    }

    /// What no name but those of drafts begins with.
    fileprivate var prefix: String {
        switch self {
        case .archive: ".archive."
        case .bundle: ".bundle."
        case .deltas: ".deltas."
        }
    }

    /// A name that nothing else has.
    func makeName() -> FilePath.Component {
        let mark = String(UInt64.random(in: 0...UInt64.max), radix: 36)
        return FilePath.Component(stringLiteral: prefix + mark)
    }
}
