import ArgumentParser
import Glibc
import StageContainer
import StageModel
import StagePack
import StageSystem
import StagingService
import SystemPackage

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
        AppValidateCommand.printWarnings(AppValidateCommand.warnings(about: file))
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
            try directory.rewrite(
                registration.json(),
                to: component,
                durably: true,
                exactly: isOfSystem ? .file : nil
            )
        } catch {
            throw CommandFailure(registrations: error, path: folder.appending(name))
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
                    "correct it, then run \(HintSource.quoted(["app", "validate", file])) to check it"
            }
            throw failure
        }
    }
}
