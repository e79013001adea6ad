import ArgumentParser
import StageModel
import StagePublish
import StageSystem
import SystemPackage

struct ManifestCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "manifest",
        abstract: "Check manifests before they are published.",
        subcommands: [ManifestLintCommand.self]
    )
}

struct ManifestLintCommand: StagePackSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "lint",
        abstract: "Say what is wrong with manifests, and what is hardly meant.",
        discussion: "Ends with status 3 if a manifest has an error, or a warning with '--strict'."
    )

    @Argument(help: "The manifests' files.")
    var files: [String]

    @Flag(help: "Let warnings count as errors for the exit status.") var strict = false
    @Flag(help: "Print the findings as JSON.") var json = false

    var printsJSON: Bool { json }

    func perform() async throws(CommandFailure) -> ExitStatus {
        var reports: [LintReport] = []
        for file in files {
            let findings = ManifestLint.findings(in: try Self.read(file))
            reports.append(LintReport(file: file, findings: findings))
        }
        Console.print(Listing(elements: reports.filter { json || !$0.isClean }), asJSON: json)
        let severities = reports.flatMap { $0.findings.map(\.severity) }
        return severities.contains { strict || $0 == .error } ? .findings : .success
    }

    private static func read(_ file: String) throws(CommandFailure) -> [UInt8] {
        do throws(FileError) {
            // One byte more than is accepted, so that the finding is about the size.
            return try File.open(reading: FilePath(file))
                .readAll(limit: ManifestLimits.byteCount + 1)
        } catch {
            throw CommandFailure(
                status: .manifestUnavailable,
                message: error.description,
                hint: nil,
                retry: .never
            )
        }
    }
}

/// What `manifest lint` prints of one file.
struct LintReport: Encodable, CustomStringConvertible {
    var file: String
    var findings: [LintFinding]

    var isClean: Bool { findings.isEmpty }

    var description: String {
        findings.map { "\(file.forDisplay()): \($0)" }.joined(separator: "\n")
    }
}
