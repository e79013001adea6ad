import ArgumentParser
import Glibc
import StageContainer
import StageModel
import StagePublish
import StageSystem
import StagingService
import SystemPackage

struct AppValidateCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "validate",
        abstract: "Report errors in registrations before they are installed.",
        discussion: """
            Prints nothing if there are none; ends with status 3 if there are, and with 64 if one of the files does not exist.
            """
    )

    @Argument(help: "The registrations' files.", completion: .file(extensions: ["json"]))
    var files: [String]
    @Flag(help: "Print the findings as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        for file in files { try Self.checkPresence(of: file) }
        let warnings = files.flatMap { Self.warnings(about: $0) + Self.modeWarnings(about: $0) }
        if !json { Self.printWarnings(warnings) }
        let errors = files.flatMap { Self.findings(FilePath($0)) }
        let findings = (json ? warnings : []) + errors
        Console.print(Listing(elements: findings, name: "findings"), asJSON: json)
        return errors.isEmpty ? .success : .findings
    }

    /// Refuses a path at which there is no regular file; other errors of reading are findings.
    private static func checkPresence(of file: String) throws(CommandFailure) {
        do throws(FileError) {
            _ = try File.open(readingRegular: FilePath(file))
        } catch {
            var failure = CommandFailure(argument: error)
            guard failure.status == .usage else { return }
            failure.hint = "pass the path of the registration"
            throw failure
        }
    }

    /// Returns a warning for each member that is ignored, and is probably misspelt.
    static func warnings(about file: String) -> [RegistrationFinding] {
        // A file that cannot be read is a finding.
        let bytes = try? File.open(readingRegular: FilePath(file))
            .readAll(limit: ManifestLimits.registrationByteCount)
        return Registration.misspeltMembers(in: bytes ?? []).map { member in
            RegistrationFinding(severity: .warning, file: file, finding: "\(member)")
        }
    }

    /// Returns a warning for each permission with which the file could not be used as a registration of the system.
    static func modeWarnings(about file: String) -> [RegistrationFinding] {
        let path = FilePath(file).absolute.lexicallyNormalized()
        let folders = RegistrationFolders(environment: ProcessEnvironment.current).folders
        let index = folders.firstIndex(of: path.removingLastComponent())
        // The user's folder needs no permissions for others; for root in a system folder, wrong permissions are errors.
        guard index.map({ $0 < RegistrationLocations.ofSystem.count && geteuid() != 0 }) ?? true,
            let status = FileStatus(following: path), status.kind == .file
        else { return [] }
        let mode = "mode 0" + String(status.mode, radix: 8)
        let texts = [
            status.mode & 0o022 == 0
                ? nil
                : "\(mode): root refuses a registration that its group or other users can write",
            status.mode & 0o004 != 0
                ? nil
                : "\(mode): other users cannot read it, and their programs find no registration",
        ]
        return texts.compactMap(\.self).map { text in
            RegistrationFinding(
                severity: .warning,
                file: file,
                finding: "\(text): install it with mode 0644"
            )
        }
    }

    /// Prints warnings to standard error.
    static func printWarnings(_ warnings: [RegistrationFinding]) {
        for warning in warnings { Console.note("stagepack: warning: \(warning)") }
    }

    /// Returns the errors of one registration file, also if it cannot be read.
    static func findings(_ path: FilePath) -> [RegistrationFinding] {
        let folder = path.absolute.lexicallyNormalized().removingLastComponent()
        let folders = RegistrationFolders(environment: ProcessEnvironment.current).folders
        let isInstalled = folders.contains(folder)
        let registration: Registration
        do throws(RegistrationError) {
            // A file in a folder of registrations is in effect, so its owner and mode are checked, too.
            registration = try Registration(file: path, isInstalled: isInstalled)
        } catch {
            return [RegistrationFinding(severity: .error, file: path.string, finding: error.fault)]
        }
        var texts: [String] = []
        let name = "\(registration.application).json"
        if path.lastComponent?.string != name {
            texts.append("the file's name: expected '\(name)'")
        }
        if case .root(let text) = registration.trust,
            FilePath(text).removingLastComponent() == path.absolute.removingLastComponent(),
            text.hasSuffix(".json")
        {
            texts.append(
                "trust.root: a file that ends in '.json' in the directory of registrations counts as a registration"
            )
        }
        texts += faults(of: registration, isInstalled: isInstalled)
        return texts.map {
            RegistrationFinding(severity: .error, file: path.string, finding: $0)
        }
    }

    /// Returns the faults of a valid registration that do not depend on the path of its file.
    static func faults(of registration: Registration, isInstalled: Bool = false) -> [String] {
        var texts: [String] = []
        do throws(StagingFailure) {
            try registration.checkRoot(isInstalled: isInstalled)
        } catch {
            texts.append("trust.root: \(error)")
        }
        for (member, program) in [
            ("downloaderExtension", registration.downloaderExtension),
            ("backgroundEventsHandler", registration.backgroundEventsHandler),
        ] {
            guard let program, !FileStatus.isExecutable(FilePath(program.path)) else { continue }
            texts.append("\(member).path: '\(program.path)' cannot be executed here")
        }
        return texts
    }
}

/// One error in a registration.
struct RegistrationFinding: Encodable, CustomStringConvertible {
    var severity: LintFinding.Severity
    var file: String
    var finding: String

    var description: String { "\(file.forDisplay()): \(finding.escapedForDisplay)" }
}
