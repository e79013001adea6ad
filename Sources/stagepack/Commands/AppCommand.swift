import ArgumentParser
import FoundationEssentials
import Glibc
import StageContainer
import StageModel
import StagePack
import StagePublish
import StageSystem
import StagingService
import SystemPackage

struct AppCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "app",
        abstract: "List, show, register and unregister applications.",
        subcommands: [
            AppListCommand.self, AppShowCommand.self, AppValidateCommand.self,
            AppRegisterCommand.self, AppUnregisterCommand.self,
        ]
    )
}

struct AppListCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "list",
        abstract: "List the applications that are registered.",
        discussion: """
            Ends with status 3 if a registration is not valid, or if a file is ignored because its \
            name is not the identifier of an application and '.json'.
            """
    )

    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        let folders = RegistrationFolders(environment: ProcessEnvironment.current)
        let applications = try CommandFailure.wrapping { () throws(StagingFailure) in
            try folders.applications()
        }
        let rows = applications.map { id in
            do throws(StagingFailure) {
                return RegistrationReport(try folders.registration(of: id))
            } catch {
                return RegistrationReport(id, failure: CommandFailure(error))
            }
        }
        let misnamed = folders.misnamedFiles()
        var listing = RegistrationListing(applications: rows)
        listing.ignored = misnamed.isEmpty ? nil : misnamed.map(\.path.string)
        Console.print(listing, asJSON: json)
        if !json { for file in misnamed { Console.note("stagepack: warning: \(file)") } }
        let isValid = misnamed.isEmpty && rows.allSatisfy { $0.problem == nil }
        return isValid ? .success : .findings
    }
}

struct AppShowCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "show",
        abstract: "Print the registration that holds for an application."
    )

    @Argument(help: "The application.", completion: ApplicationCompletion.kind) var id: String
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        let folders = RegistrationFolders(environment: ProcessEnvironment.current)
        let found: RegistrationFolders.Found
        do throws(StagingFailure) {
            found = try folders.registration(named: id)
        } catch {
            throw CommandFailure(registration: error)
        }
        let text = String(decoding: found.value.json(), as: UTF8.self).jsonForDisplay
        if json {
            Console.print(RegistrationReport(found), asJSON: true)
        } else {
            Console.say(found.path.string.escapedForDisplay)
            for path in found.overridden {
                Console.say("instead of \(path.string.escapedForDisplay)")
            }
            Console.say(text.hasSuffix("\n") ? String(text.dropLast()) : text)
        }
        return .success
    }
}

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
        if !json { Self.tell(warnings) }
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
            let failure = CommandFailure(argument: error)
            if failure.status == .usage { throw failure }
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
        let place = folders.firstIndex(of: path.removingLastComponent())
        // The user's folder needs no permissions for others; for root in a system folder, wrong permissions are errors.
        guard place.map({ $0 < RegistrationLocations.ofSystem.count && geteuid() != 0 }) ?? true,
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
    static func tell(_ warnings: [RegistrationFinding]) {
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
            texts.append("trust.root: beside it, a file that ends in '.json' is a registration")
        }
        texts += faults(of: registration, isInstalled: isInstalled)
        return texts.map {
            RegistrationFinding(severity: .error, file: path.string, finding: $0)
        }
    }

    /// Returns the faults of a valid registration that do not depend on the place of its file.
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

struct AppRegisterCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "register",
        abstract: "Register an application: for the system when run by root, else for the user.",
        discussion: "Packages do not need this command: they install the file."
    )

    @Argument(help: "The registration's file.", completion: .file(extensions: ["json"]))
    var file: String
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        let registration = try Registration.read(named: file)
        AppValidateCommand.tell(AppValidateCommand.warnings(about: file))
        if let fault = AppValidateCommand.faults(of: registration).first {
            throw CommandFailure(
                status: .manifestInvalid,
                message: "registration '\(file.forDisplay())': \(fault)",
                hint: "run \(HintSource.quoted(["app", "validate", file])) to see every error",
                retryAdvice: .never
            )
        }
        let folders = RegistrationFolders(environment: ProcessEnvironment.current)
        guard let folder = folders.folderForWriting else {
            throw .usage("no folder for registrations: set HOME or XDG_CONFIG_HOME")
        }
        let name = "\(registration.application).json"
        do throws(FileError) {
            let component = FilePath.Component(known: name)
            // A registration of the system is for all users, regardless of the umask of root's shell.
            let isOfSystem = geteuid() == 0
            let directory =
                try isOfSystem
                ? Directory.make(folder, exactly: .directory) : Directory.make(folder)
            directory.removeLeftovers(of: component)
            try directory.write(
                registration.json(),
                to: component,
                durably: true,
                exactly: isOfSystem ? .file : nil
            )
        } catch {
            throw CommandFailure(registrations: error)
        }
        let found = try CommandFailure.wrapping { () throws(StagingFailure) in
            try folders.registration(of: registration.application)
        }
        Console.print(change: RegistrationReport(found), asJSON: json)
        return .success
    }
}

extension Registration {
    /// Reads a registration from a file that the command line names.
    static func read(named file: String) throws(CommandFailure) -> Registration {
        do throws(RegistrationError) {
            return try Registration(file: FilePath(file), isInstalled: false)
        } catch {
            var failure = CommandFailure(StagingFailure.registration("\(error)"))
            if case .unreadable(let error) = error {
                failure.status = CommandFailure.status(ofArgument: error)
                failure.hint = "pass the path of the registration"
            } else {
                failure.hint =
                    "run \(HintSource.quoted(["app", "validate", file])) to see every error"
            }
            throw failure
        }
    }
}

extension CommandFailure {
    /// Creates the failure for an application that the command line names and that has no usable registration.
    init(registration error: StagingFailure) {
        self.init(error)
        guard case .notRegistered = error else { return }
        hint = "run 'stagepack app list' to see the applications that are registered"
    }

    /// Creates the failure for the folder of registrations, which cannot be changed.
    init(registrations error: FileError) {
        let hint: String? =
            switch error.errno {
            case _ where error.isOutOfSpace: "free some space"
            case .readOnlyFileSystem: "make the file system writable"
            case .permissionDenied, .notPermitted: "run it as a user that may write there"
            default: nil
            }
        self.init(
            status: error.isOutOfSpace ? .noSpace : .containerUnusable,
            message: error.description,
            hint: hint,
            retryAdvice: error.isOutOfSpace ? .later : .never
        )
    }
}

/// One error in a registration.
struct RegistrationFinding: Encodable, CustomStringConvertible {
    var severity: LintFinding.Severity
    var file: String
    var finding: String

    var description: String { "\(file.forDisplay()): \(finding.escapedForDisplay)" }
}

/// Output of `app list`, `app show --json` and `app register` for one application.
struct RegistrationReport: Codable, CustomStringConvertible {
    var id: ApplicationID
    var version: String?
    var group: ApplicationGroupID?
    var manifestURLs: [String]?
    var file: String?
    /// Files of earlier folders that this registration overrides.
    var overridden: [String]?
    /// The reason why the registration is not valid; `nil` if it is.
    var problem: FailureReport?

    init(_ found: RegistrationFolders.Found) {
        id = found.value.application
        version = found.value.version
        group = found.value.group
        manifestURLs = found.value.manifestURLs
        file = found.path.string
        overridden = found.overridden.map(\.string)
    }

    init(_ id: ApplicationID, failure: CommandFailure) {
        self.id = id
        problem = FailureReport(failure)
    }

    var description: String {
        let (version, file) = (version?.escapedForDisplay, file?.escapedForDisplay)
        return problem.map { "\(id): \($0.message)" }
            ?? "\(id): version \(version ?? "-"), registered in \(file ?? "-")"
    }
}

/// Output of `app list`.
struct RegistrationListing: Encodable, CustomStringConvertible {
    var applications: [RegistrationReport]
    /// The files that are not used because of their names; `nil` if there are none.
    var ignored: [String]?

    var description: String {
        guard !applications.isEmpty else { return "" }
        let rows = applications.map { row in
            [
                row.id.text, row.version ?? "-", row.group?.text ?? "-",
                row.problem.map { "not valid: \($0.message)" } ?? row.file ?? "-",
            ].map(\.escapedForDisplay)
        }
        return Table(head: ["application", "version", "group", "registered in"], rows: rows)
            .description
    }
}
