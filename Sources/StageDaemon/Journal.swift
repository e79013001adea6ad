import Foundation
import GRDB
import Logging
import StageControl
import StageSystem
import Synchronization
import SystemPackage

/// Persistent state of the daemon in SQLite: sessions, tasks, and unacknowledged events.
///
/// Committed changes are durable (write-ahead log with `synchronous=FULL`, verified when the journal is opened).
/// Changes that arrive while a commit waits for the disk share the next commit. Received bytes are not recorded here
/// but in the record beside each part file.
final class Journal: Sendable {
    private let pool: DatabasePool
    /// Path of the database file.
    var path: String { pool.path }
    private let mark: TaskIDHighWaterMark
    /// Lower bound of task identifiers: the first task of this journal gets a higher one.
    ///
    /// Above the journal's own counter only if an earlier journal was lost.
    let taskIDLowerBound: Int64
    private let pending = Mutex(Pending())
    private let logger: Logger

    private struct Change: Sendable {
        var apply: @Sendable (Database) throws -> Void
        var finish: @Sendable ((any Error)?) -> Void
    }

    private struct Pending {
        var changes: [Change] = []
        var isWriting = false
    }

    /// Opens the journal at `path`, or creates it.
    ///
    /// A damaged journal is moved aside and replaced by a new one. A journal with tables of another version throws
    /// ``DaemonError/journalOfOtherVersion(_:)``. Task identifiers continue after the highest that an earlier journal
    /// may have assigned. Before a new journal is created, `forgetting` moves the files of earlier tasks aside and
    /// returns whether there were any.
    static func open(
        _ path: FilePath,
        logger: Logger,
        forgetting: () throws(DaemonError) -> Bool
    ) throws(DaemonError) -> Journal {
        let mark: TaskIDHighWaterMark
        let isMissing: Bool
        do throws(FileError) {
            mark = try TaskIDHighWaterMark(in: try Directory.open(path.removingLastComponent()))
            // Taking the directory's lock creates an empty journal file.
            isMissing = try File.open(reading: path).status().size == 0
        } catch {
            throw .file(error)
        }
        do {
            if isMissing {
                let wasLost = try forgetting() || (mark.number ?? 0) > 0
                if wasLost {
                    logger.error(
                        "The journal is missing; the daemon creates a new one",
                        metadata: ["journal.path": "\(path)"]
                    )
                }
                return try makeNew(path, mark: mark, isFirst: !wasLost, logger: logger)
            }
            let journal = try Journal(
                path,
                mark: mark,
                taskIDLowerBound: mark.number ?? 0,
                logger: logger
            )
            if mark.number == nil { journal.makeMark() }
            return journal
        } catch let error as DatabaseError where error.isDamage {
            logger.error(
                "The journal is damaged, and a new one begins",
                metadata: ["journal.path": "\(path)", "error": "\(error)"]
            )
            do {
                try moveAside(path)
                _ = try forgetting()
                return try makeNew(path, mark: mark, isFirst: false, logger: logger)
            } catch {
                throw DaemonError(journal: path, error)
            }
        } catch {
            throw DaemonError(journal: path, error)
        }
    }

    /// Returns the date of the last change of the journal at `path`, by the clock of that time; `nil` if there is no
    /// journal.
    static func lastChange(of path: FilePath) -> Date? {
        // Changes go to the log file, which an orderly end removes. While the log exists, the time of the database file may
        // come from a clock that was set back later. A file that cannot be inspected fails when it is opened.
        for file in [path.string + "-wal", path.string] {
            guard let time = try? File.open(reading: FilePath(file)).status().modified else {
                continue
            }
            return Date(timeIntervalSince1970: Double(time))
        }
        return nil
    }

    private static func moveAside(_ path: FilePath) throws {
        let suffix = Int(Date.now.timeIntervalSince1970)
        for part in ["", "-wal", "-shm"] {
            let file = path.string + part
            guard FileStatus.exists(FilePath(file)) else { continue }
            try FileManager.default.moveItem(
                atPath: file,
                toPath: "\(path).damaged-\(suffix)\(part)"
            )
        }
    }

    /// Creates an empty journal that does not reuse the task identifiers of an earlier one.
    private static func makeNew(
        _ path: FilePath,
        mark: TaskIDHighWaterMark,
        isFirst: Bool,
        logger: Logger
    ) throws -> Journal {
        // Without a mark, the seconds since 1970 exceed any identifier assigned so far.
        let time = isFirst ? 0 : Int64(Date.now.timeIntervalSince1970)
        let taskIDLowerBound = mark.number ?? time
        try mark.raise(to: taskIDLowerBound)
        return try Journal(path, mark: mark, taskIDLowerBound: taskIDLowerBound, logger: logger)
    }

    private init(
        _ path: FilePath,
        mark: TaskIDHighWaterMark,
        taskIDLowerBound: Int64,
        logger: Logger
    ) throws {
        var configuration = Configuration()
        configuration.busyMode = .timeout(5)
        self.logger = logger
        self.mark = mark
        self.taskIDLowerBound = taskIDLowerBound
        // The journal contains secrets of clients. Files that SQLite adds get the mode of this one.
        try FileDescriptor.open(
            path,
            .readWrite,
            options: [.create, .closeOnExec],
            permissions: .ownerReadWrite
        ).close()
        pool = try DatabasePool(path: path.string, configuration: configuration)
        try pool.writeWithoutTransaction(Self.synchronizeCommits)
        let check = try pool.read { try String.fetchOne($0, sql: "PRAGMA quick_check(1)") }
        guard check == "ok" else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
        // A complete schema is not written again, so that a full disk does not prevent the start.
        let migrator = Self.migrator
        let (isOfOtherVersion, isComplete) = try pool.read { database in
            let hasOtherTables =
                try migrator.appliedIdentifiers(database).isEmpty
                && database.tableExists(SessionRecord.databaseTableName)
            return (
                try hasOtherTables || migrator.hasBeenSuperseded(database),
                try migrator.hasCompletedMigrations(database)
            )
        }
        guard !isOfOtherVersion else { throw DaemonError.journalOfOtherVersion(path) }
        if !isComplete { try migrator.migrate(pool) }
    }

    /// Creates the missing mark of an existing journal.
    private func makeMark() {
        do {
            try mark.raise(to: try pool.read(Self.lastNumber))
        } catch {
            // Creating the next task tries again, and is refused if that fails.
            logger.warning("Numbers are not marked yet", metadata: ["error": "\(error)"])
        }
    }

    /// Returns the last task identifier that the journal has assigned.
    static func lastNumber(_ database: Database) throws -> Int64 {
        let statement = try database.cachedStatement(
            sql: "SELECT seq FROM sqlite_sequence WHERE name = 'task'"
        )
        return try Int64.fetchOne(statement) ?? 0
    }

    /// Makes each commit wait until it is durable.
    ///
    /// `prepareDatabase` cannot do this: afterwards the pool sets its writer to `NORMAL`.
    private static func synchronizeCommits(_ database: Database) throws {
        try database.execute(sql: "PRAGMA synchronous = FULL")
        let full = 2
        guard try Int.fetchOne(database, sql: "PRAGMA synchronous") == full else {
            throw DatabaseError(message: "commits are not synchronized")
        }
    }

    /// Reads from the database, on a blocking thread.
    func read<Value: Sendable>(
        _ body: @escaping @Sendable (Database) throws -> Value
    ) async throws(DaemonError) -> Value {
        let path = pool.path
        return try await withBlockingThread { [pool] () throws(DaemonError) in
            do {
                return try pool.read(body)
            } catch {
                throw DaemonError(journal: FilePath(path), error)
            }
        }
    }

    /// Writes to the database; returns once the change is durable.
    ///
    /// An error of `body` undoes its changes.
    @discardableResult func write<Value: Sendable>(
        _ body: @escaping @Sendable (Database) throws -> Value
    ) async throws(DaemonError) -> Value {
        let result: Result<Value, any Error> = await withCheckedContinuation { continuation in
            let slot = Mutex<Result<Value, any Error>?>(nil)
            enqueue(
                Change(
                    apply: { database in
                        let value = try body(database)
                        slot.withLock { $0 = .success(value) }
                    },
                    finish: { error in
                        let value = slot.withLock { $0 }
                        continuation.resume(
                            returning: error.map { .failure($0) } ?? value
                                ?? .failure(DatabaseError(resultCode: .SQLITE_INTERNAL))
                        )
                    }
                )
            )
        }
        do {
            return try result.get()
        } catch {
            throw DaemonError(journal: FilePath(pool.path), error)
        }
    }

    private func enqueue(_ change: Change) {
        let begins = pending.withLock { pending in
            pending.changes.append(change)
            defer { pending.isWriting = true }
            return !pending.isWriting
        }
        guard begins else { return }
        pool.asyncWriteWithoutTransaction { [self] database in
            while true {
                let batch = pending.withLock { pending in
                    defer { pending.changes = [] }
                    pending.isWriting = !pending.changes.isEmpty
                    return pending.changes
                }
                if batch.isEmpty { return }
                commit(batch, to: database)
            }
        }
    }

    /// Commits several changes in one transaction; a failing change is rolled back alone.
    private func commit(_ batch: [Change], to database: Database) {
        var errors = [(any Error)?](repeating: nil, count: batch.count)
        do {
            try database.inTransaction(.immediate) {
                for (index, change) in batch.enumerated() {
                    do {
                        try database.inSavepoint {
                            try change.apply(database)
                            return .commit
                        }
                    } catch {
                        errors[index] = error
                    }
                }
                try mark.raise(to: try Self.lastNumber(database))
                return .commit
            }
        } catch {
            logger.error("The journal could not be written", metadata: ["error": "\(error)"])
            for index in errors.indices { errors[index] = error }
        }
        for (change, error) in zip(batch, errors) { change.finish(error) }
    }
}
