import Foundation
import Glibc

/// A script of Python that runs beside a test: a server, or another user's process.
struct PythonScript {
    private let process = Process()

    /// Starts the script; it tells the test by files what there is to tell.
    ///
    /// It has no pipe of the test's, which another process that is started meanwhile would hold open.
    init(_ script: String, _ arguments: String...) throws {
        process.executableURL = URL(filePath: "/usr/bin/python3")
        process.arguments = ["-c", script] + arguments
        process.standardInput = FileHandle.nullDevice
        try process.run()
    }

    /// Ends the script, which may have inherited that it hears no other signal.
    func end() { kill(process.processIdentifier, SIGKILL) }
}
