import GRDB

/// Tables of the journal.
extension Journal {
    /// Migrations that create and change the tables.
    ///
    /// GRDB records the applied ones in a table of its own.
    ///
    /// A released migration never changes; a change of the tables is a further migration. Each runs in one
    /// transaction, so that the next start repeats it after a crash.
    static var migrator: DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("tables, and forms of version 1") { database in
            try database.execute(sql: tables)
            try database.execute(sql: usageSchema)
            // Session identifiers start at random, so that clients recognise a new session even after all files of
            // the daemon were deleted.
            try database.execute(
                sql: "INSERT INTO sqlite_sequence (name, seq) VALUES ('session', ?)",
                arguments: [Int64.random(in: 0..<sessionNumbers)]
            )
        }
        return migrator
    }

    /// Upper bound of the first session identifier; JSON represents integers exactly up to 2^53.
    private static let sessionNumbers: Int64 = 1 << 52

    private static let tables = """
        CREATE TABLE session (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            user INTEGER NOT NULL,
            identifier TEXT NOT NULL,
            rights BLOB NOT NULL,
            configuration BLOB NOT NULL,
            relaunch BLOB NOT NULL,
            last INTEGER NOT NULL DEFAULT 0,
            acknowledged INTEGER NOT NULL DEFAULT 0,
            UNIQUE (user, identifier)
        );
        CREATE TABLE task (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            session INTEGER NOT NULL REFERENCES session ON DELETE CASCADE,
            creator INTEGER NOT NULL,
            token TEXT NOT NULL,
            state INTEGER NOT NULL,
            host TEXT NOT NULL,
            priority INTEGER NOT NULL,
            needs INTEGER NOT NULL,
            blocks INTEGER NOT NULL,
            earliest REAL,
            created REAL NOT NULL,
            deadline REAL NOT NULL,
            part TEXT NOT NULL,
            file TEXT,
            request BLOB NOT NULL,
            outcome BLOB,
            upload BLOB,
            UNIQUE (session, token)
        );
        CREATE TABLE event (
            session INTEGER NOT NULL REFERENCES session ON DELETE CASCADE,
            sequence INTEGER NOT NULL,
            task INTEGER NOT NULL,
            final INTEGER NOT NULL,
            body BLOB NOT NULL,
            PRIMARY KEY (session, sequence)
        ) WITHOUT ROWID;
        CREATE TABLE remnant (
            token TEXT PRIMARY KEY,
            user INTEGER NOT NULL,
            part TEXT NOT NULL,
            url TEXT NOT NULL,
            expires REAL NOT NULL
        ) WITHOUT ROWID;
        CREATE INDEX remnant_part ON remnant (part);
        CREATE INDEX task_part ON task (part) WHERE part <> 'task-' || id;
        """
}
