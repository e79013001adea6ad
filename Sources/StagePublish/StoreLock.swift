package import StageSystem
import SystemPackage

/// A lock on a store: shared while a process writes into it, verifies it or adds its objects to a manifest, exclusive for
/// its garbage collection.
///
/// Protects temporary files from cleanup. Hidden files that no process writes to remain after runs that were
/// killed, and can be large; the next run that is alone removes them.
package struct StoreLock: ~Copyable, Sendable {
    private let lock: LockFile?

    /// The name of the lock file, in the store.
    private static let name: FilePath.Component = ".lock"
    /// The time limit for the cleanup by another process.
    private static let timeout = Duration.seconds(30)

    /// Removes the temporary files of earlier runs if no other process is using the store, and takes the
    /// lock.
    ///
    /// Removes nothing if the file system has no such locks.
    ///
    /// - Parameters:
    ///   - store: The store.
    ///   - canBeReadOnly: Whether no lock is taken in a store that the user cannot write.
    ///   - removesTemporaryFiles: Whether temporary files are removed.
    /// - Throws: ``FileError`` with `isHeldByOthers` if the cleanup by another process takes too long, or the task is
    ///   cancelled meanwhile.
    package init(
        _ store: Directory,
        canBeReadOnly: Bool = false,
        removesTemporaryFiles: Bool = true
    ) async throws(FileError) {
        do throws(FileError) {
            if removesTemporaryFiles,
                let alone = try LockFile.attempt(Self.name, in: store, mode: .exclusive)
            {
                // Files that cannot be removed are left to a later run.
                _ = try? Self.removeTemporaryFiles(in: store)
                _ = consume alone
            }
            lock = try await LockFile.wait(
                for: Self.name,
                in: store,
                mode: .shared,
                timeout: Self.timeout
            )
        } catch {
            guard Self.isWithoutLocks(error, canBeReadOnly: canBeReadOnly) else { throw error }
            lock = nil
        }
    }

    /// Takes the lock of a process that writes into the store.
    ///
    /// - Throws: ``PackagingError``; `cancelled` if the task is cancelled meanwhile.
    static func forWriting(in store: Directory) async throws(PackagingError) -> StoreLock {
        do throws(FileError) {
            return try await StoreLock(store)
        } catch {
            throw Task.isCancelled ? .cancelled : .file(error)
        }
    }

    /// Waits until no other process is using the store, and takes the lock exclusively.
    ///
    /// - Parameters:
    ///   - store: The store.
    ///   - isDryRun: Whether the temporary files of killed runs are kept, and no lock is taken in a store that the user
    ///     cannot write.
    /// - Throws: ``FileError`` with `isHeldByOthers` if other processes use the store for too long, or the task is
    ///   cancelled meanwhile; with ``isWithoutLocks(_:)`` if the file system has no such locks, unless `isDryRun`.
    package init(
        alone store: Directory,
        isDryRun: Bool
    ) async throws(FileError) {
        do throws(FileError) {
            lock = try await LockFile.wait(
                for: Self.name,
                in: store,
                mode: .exclusive,
                timeout: Self.timeout
            )
            // Files that cannot be removed are left to a later run.
            if !isDryRun { _ = try? Self.removeTemporaryFiles(in: store) }
        } catch {
            // A writer holds no lock there either, and would lose objects that it is about to publish.
            guard isDryRun, Self.isWithoutLocks(error, canBeReadOnly: true) else { throw error }
            lock = nil
        }
    }

    /// Waits until no other process changes a record of the store, and takes the lock for doing so; `nil` if the file
    /// system has no such locks.
    ///
    /// - Throws: ``FileError`` with `isHeldByOthers` after a time, or when the task is cancelled meanwhile.
    static func forRecords(in store: Directory) async throws(FileError) -> LockFile? {
        do throws(FileError) {
            return try await LockFile.wait(
                for: ".records.lock",
                in: store,
                mode: .exclusive,
                timeout: timeout
            )
        } catch {
            guard isWithoutLocks(error, canBeReadOnly: false) else { throw error }
            return nil
        }
    }

    /// Returns whether the error means that the file system does not support locks, or that the user may write none.
    private static func isWithoutLocks(_ error: FileError, canBeReadOnly: Bool) -> Bool {
        if canBeReadOnly, error.errno == .permissionDenied || error.errno == .readOnlyFileSystem {
            return true
        }
        return isWithoutLocks(error)
    }

    /// Returns whether the error means that the file system does not support locks.
    package static func isWithoutLocks(_ error: FileError) -> Bool {
        [.badFileDescriptor, .noLocks, .notSupported].contains(error.errno)
    }

    private static func removeTemporaryFiles(in store: Directory) throws(FileError) {
        for kind in StoreObjectKind.allCases {
            guard let directory = try store.directory(FilePath(kind.folder)) else { continue }
            for entry in try directory.entries()
            where entry.kind == .file
                && (entry.path.string.hasPrefix(kind.prefix) || Directory.isTemporary(entry.name))
            {
                try directory.remove(entry.name)
            }
        }
        // Only temporary files of records and marks: the directory of the store may contain files of other programs.
        for entry in try store.entries()
        where entry.kind == .file && Directory.isTemporary(entry.name)
            && StoreGarbageCollection.isOwnFile(entry.path.string)
        {
            try store.remove(entry.name)
        }
    }
}

/// A kind of object, with a directory of its own, in which it has a temporary name until it is complete.
package enum StoreObjectKind: CaseIterable, Sendable {
    case archive, bundle, deltas, index, patch

    /// The directory in the store.
    package var folder: String {
        switch self {
        case .archive: "a"
        case .bundle: "b"
        case .deltas: "d"
        case .index: "i"
        case .patch: "p"
        }
    }

    /// The prefix of temporary names, which no other names have.
    fileprivate var prefix: String {
        switch self {
        case .archive: ".archive."
        case .bundle: ".bundle."
        case .deltas: ".deltas."
        case .index: ".index."
        case .patch: ".patch."
        }
    }

    /// Returns a unique temporary name.
    func makeName() -> FilePath.Component {
        let mark = String(UInt64.random(in: 0...UInt64.max), radix: 36)
        return FilePath.Component(stringLiteral: prefix + mark)
    }
}

extension Directory {
    /// Waits until the names of all objects of this store are on disk, before a manifest names some of them.
    ///
    /// A killed run may have renamed objects without syncing their directories, and a later run leaves them as they are. Omits
    /// directories of file systems that cannot sync them, such as a read-only image (squashfs).
    package func synchronizeObjects() throws(FileError) {
        for kind in StoreObjectKind.allCases {
            let folder = path.appending(kind.folder)
            guard FileStatus.exists(folder) else { continue }
            try Directory.open(folder).synchronizeIfSupported()
        }
        try synchronizeIfSupported()
    }

    private func synchronizeIfSupported() throws(FileError) {
        do throws(FileError) {
            try synchronize()
        } catch {
            // The error of fsync(2) where the file system has no such operation.
            guard error.errno == .invalidArgument else { throw error }
        }
    }
}
