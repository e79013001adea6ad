import GRDB

/// SQLite as it is linked with this program.
enum LinkedDatabaseLibrary {
    /// The version.
    static let version = readVersion() ?? "unknown"

    private static func readVersion() -> String? {
        // Without a version, `version` is "unknown": the error is of no use.
        let queue = try? DatabaseQueue()
        return try? queue?.read { try String.fetchOne($0, sql: "SELECT sqlite_version()") }
    }
}
