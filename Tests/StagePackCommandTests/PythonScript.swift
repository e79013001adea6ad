import Foundation
import Glibc

/// A script of Python that runs beside a test: a server, or another user's process.
struct PythonScript {
    private let process = Process()

    /// Starts the script, which reports to the test through files.
    ///
    /// It has no pipe of the test, which another process that is started meanwhile would keep
    /// open.
    init(_ script: String, _ arguments: String...) throws {
        process.executableURL = URL(filePath: "/usr/bin/python3")
        process.arguments = ["-c", script] + arguments
        process.standardInput = FileHandle.nullDevice
        try process.run()
    }

    /// Kills the script, which may have inherited ignored signals.
    func end() { kill(process.processIdentifier, SIGKILL) }
}
