package import SystemPackage

/// Files that tests start as programs.
///
/// execve(2) refuses a file that any process has open for writing (`ETXTBSY`). A child that another thread of the tests forks has all
/// descriptors of the tests until it executes its own program. So the tests themselves never open such a file for
/// writing: a program of the system creates it.
package enum ProgramFile {
    /// Makes an executable file (mode 0755) with the text of a script, in place of a file of that name.
    ///
    /// - Throws: ``DaemonProcess/Failure`` where the file cannot be made.
    package static func write(_ text: String, to path: FilePath) throws {
        let script = #"rm -f -- "$1" && printf %s "$2" >"$1" && chmod 0755 "$1""#
        try run(["/bin/sh", "-c", script, "sh", path.string, text], making: path)
    }

    /// Makes an executable file (mode 0755) that is a copy of another, in place of a file of that name.
    ///
    /// - Throws: ``DaemonProcess/Failure`` where the file cannot be made.
    package static func copy(from source: FilePath, to path: FilePath) throws {
        let command = ["/usr/bin/install", "--mode=0755", "--", source.string, path.string]
        try run(command, making: path)
    }

    private static func run(_ command: [String], making path: FilePath) throws {
        let status = try StartedProcess(command, log: "/dev/stderr").end()
        guard status == 0 else {
            throw DaemonProcess.Failure(
                description: "'\(command[0])' cannot make '\(path)': status \(status)"
            )
        }
    }
}
