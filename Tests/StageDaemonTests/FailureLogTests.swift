import Glibc
import Logging
import StageSystem
import StageTesting
import StageTransfer
import Synchronization
import SystemPackage
import Testing

@testable import StageDaemon

/// Log messages about failures that a user can cause any number of times.
@Suite(.directory)
struct FailureLogTests {
    private final class Lines: Sendable {
        let all = Mutex<[String]>([])
    }

    /// A user may create directories with the names of finished downloads, which the daemon does not remove.
    @Test func filesThatCannotBeRemovedHaveOneLine() throws {
        let lines = Lines()
        let logger = Logger(label: "test") { label in
            LineLogHandler(label: label, isForJournal: false) { line, _ in
                lines.all.withLock { $0.append(line) }
            }
        }
        let files = try TransferFiles(try TemporaryDirectory.required().path.appending("state"))
        let folder = try files.directory(of: geteuid())
        let tasks = Array(Int64(1)...30)
        for task in tasks { try folder.createDirectory(FilePath("\(task)")) }
        let removed = RemovedTasks(tasks: tasks, parts: [])
        #expect(files.discard(removed, of: geteuid(), logger: logger).isEmpty)
        let written = lines.all.withLock(\.self)
        let path = files.finishedPath(of: 1, user: geteuid())
        #expect(
            written == [
                "test: warning: A file could not be removed: cannot remove it: Is a directory path=\(path)"
            ]
        )
        let error = FileError("rename", path: path, errno: .permissionDenied)
        #expect(DaemonError.file(error).metadata == error.metadata)
    }
}
