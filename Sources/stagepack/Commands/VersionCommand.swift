import ArgumentParser
import StageArchive
import StageControl
import StageDigest
import StageFrame
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

struct VersionCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "version",
        abstract: "Print the versions of this program, of its libraries, and of the daemon."
    )

    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        var report = VersionReport()
        do throws(ControlError) {
            let environment = ProcessEnvironment.current
            let status = try await ControlClient.discover(environment: environment).status()
            report.daemon = VersionReport.Daemon(version: status.version, status.libraries)
        } catch {
            let isAbsent = if case .notRunning = error { true } else { false }
            if !isAbsent { report.daemonProblem = FailureReport(CommandFailure(error)) }
        }
        Console.print(report, asJSON: json)
        return .success
    }
}

/// Output of `version`.
private struct VersionReport: Encodable, CustomStringConvertible {
    struct Daemon: Encodable {
        var version: String
        var libraries: [String: String]?

        init(version: String, _ libraries: [String: String]?) {
            self.version = version
            self.libraries = libraries
        }
    }

    var version = Version.text
    /// The commit that `make` built the program from; `nil` if it is not known.
    var commit = Version.commit
    /// The versions of the linked libraries, by library name.
    var libraries = [
        "libarchive": LinkedArchiveLibrary.version,
        "libcurl": LinkedTransferLibrary.version,
        "OpenSSL": LinkedDigestLibrary.version,
        "zstd": LinkedFrameLibrary.version,
    ]
    /// The configuration file of the command, valid or not; `nil` if there is none.
    var configuration = SettingsFile.exists ? SettingsFile.path.string : nil
    /// The daemon that responds; `nil` if none does.
    var daemon: Daemon?
    /// The failure of a daemon that listens and does not respond; `nil` if there is none.
    var daemonProblem: FailureReport?

    var description: String {
        let commit = commit.map { " (commit \($0))" } ?? ""
        var lines = ["stagepack \(version)\(commit)"]
        lines += Self.lines(libraries)
        if let configuration { lines.append("configuration \(configuration)") }
        if let daemonProblem {
            lines.append("stagepackd: \(daemonProblem.message.escapedForDisplay)")
        }
        guard let daemon else { return lines.joined(separator: "\n") }
        lines.append("stagepackd \(daemon.version), running")
        lines += Self.lines(daemon.libraries ?? [:])
        return lines.joined(separator: "\n")
    }

    private static func lines(_ libraries: [String: String]) -> [String] {
        libraries.sorted { $0.key.lowercased() < $1.key.lowercased() }
            .map { "  \($0.key) \($0.value)" }
    }
}
