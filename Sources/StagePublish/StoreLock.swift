import StageSystem
import SystemPackage

/// A lock on a store: shared while a process writes into it, exclusive for its garbage collection.
///
/// Protects temporary files from cleanup. Hidden files that no process writes to remain after runs that were
/// killed, and can be large; the next run that is alone removes them.
struct StoreLock: ~Copyable {
    private let lock: LockFile?

    /// The name of the lock file, in the store.
    private static let name: FilePath.Component = ".lock"
    /// The time limit for the cleanup by another process.
    private static let patience = Duration.seconds(30)

    /// Removes the temporary files of earlier runs if no other process is using the store, and takes the
    /// lock.
    ///
    /// Removes nothing if the file system has no such locks.
    ///
    /// - Throws: ``FileError`` with `isHeldByOthers` if the cleanup by another process takes too long.
    init(_ store: Directory) async throws(FileError) {
        do throws(FileError) {
            if let alone = try LockFile.attempt(Self.name, in: store, mode: .exclusive) {
                // Files that cannot be removed are left to a later run.
                _ = try? Self.sweep(store)
                _ = consume alone
            }
            lock = try await LockFile.wait(
                for: Self.name,
                in: store,
                mode: .shared,
                patience: Self.patience
            )
        } catch {
            guard Self.isWithoutLocks(error) else { throw error }
            lock = nil
        }
    }

    /// Waits until no other process is using the store, removes temporary files of killed runs, and takes the
    /// lock exclusively.
    ///
    /// - Throws: ``FileError`` with `isHeldByOthers` if other processes use the store for too long.
    init(alone store: Directory) async throws(FileError) {
        do throws(FileError) {
            lock = try await LockFile.wait(
                for: Self.name,
                in: store,
                mode: .exclusive,
                patience: Self.patience
            )
            // Files that cannot be removed are left to a later run.
            _ = try? Self.sweep(store)
        } catch {
            guard Self.isWithoutLocks(error) else { throw error }
            lock = nil
        }
    }

    /// Returns whether the error means that the file system does not support locks.
    private static func isWithoutLocks(_ error: FileError) -> Bool {
        [.badFileDescriptor, .noLocks, .notSupported].contains(error.errno)
    }

    private static func sweep(_ store: Directory) throws(FileError) {
        for kind in StoreObjectKind.allCases {
            guard let directory = try store.directory(FilePath(kind.folder)) else { continue }
            for entry in try directory.entries()
            where entry.kind == .file && entry.path.string.hasPrefix(kind.prefix) {
                try directory.remove(entry.name)
            }
        }
    }
}

/// A kind of object that has a temporary name in its directory until it is complete.
enum StoreObjectKind: CaseIterable {
    case archive, bundle, deltas, patch

    /// The directory in the store.
    var folder: String {
        switch self {
        case .archive: "a"
        case .bundle: "b"
        case .deltas: "d"
        case .patch: "p"
        }
    }

    /// The prefix of temporary names, which no other names have.
    fileprivate var prefix: String {
        switch self {
        case .archive: ".archive."
        case .bundle: ".bundle."
        case .deltas: ".deltas."
        case .patch: ".patch."
        }
    }

    /// Returns a unique temporary name.
    func makeName() -> FilePath.Component {
        let mark = String(UInt64.random(in: 0...UInt64.max), radix: 36)
        return FilePath.Component(stringLiteral: prefix + mark)
    }
}
