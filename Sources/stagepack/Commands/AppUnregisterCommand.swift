import ArgumentParser
import StageModel
import StagePack
import StageSystem
import StagingService
import SystemPackage

struct AppUnregisterCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "unregister",
        abstract: "Remove the registration that 'register' made.",
        discussion: """
            The packs stay: 'gc --unregistered' removes those of applications that are no \
            longer registered. A registration that a package has installed is removed with the package.
            """
    )

    @Argument(help: "The application.", completion: ApplicationCompletion.kind) var id: String
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        let folders = RegistrationFolders(environment: ProcessEnvironment.current)
        let application = try Self.application(id)
        guard let folder = folders.folderForWriting else {
            throw .usage("no folder for registrations: set HOME or XDG_CONFIG_HOME")
        }
        let path = folder.appending("\(application).json")
        let name = FilePath.Component(stringLiteral: "\(application).json")
        guard Self.exists(name, in: folder) else {
            throw Self.notRegistered(application, at: path, in: folders)
        }
        do throws(FileError) {
            let directory = try Directory.open(folder)
            try directory.remove(name)
            TemporaryFile.removeLeftovers(of: name, in: directory)
            try directory.synchronize()
        } catch {
            throw CommandFailure(registrations: error, path: path)
        }
        let rest = try? folders.registration(of: application)
        let report = UnregistrationReport(
            application: application,
            removed: path.string,
            inForce: rest?.path.string
        )
        Console.print(change: report, asJSON: json)
        return .success
    }

    private static func application(_ text: String) throws(CommandFailure) -> ApplicationID {
        do throws(ValueError) {
            return try ApplicationID(text)
        } catch {
            throw .usage("expected an application: \(error)")
        }
    }

    /// Returns whether the folder has an entry of this name, even a dangling link: `list` shows it.
    private static func exists(_ name: FilePath.Component, in folder: FilePath) -> Bool {
        // A folder that cannot be opened has no registration that this user can remove.
        (try? Directory.open(folder).status(FilePath(name))) != nil
    }

    /// Returns the failure that names the file of the registration if it is at another path.
    private static func notRegistered(
        _ application: ApplicationID,
        at path: FilePath,
        in folders: RegistrationFolders
    ) -> CommandFailure {
        let found: RegistrationFolders.Found
        do throws(StagingFailure) {
            found = try folders.registration(of: application)
        } catch {
            return CommandFailure(registration: error)
        }
        var failure = CommandFailure.usage(
            "application '\(application)' is registered by '\(found.path)', and not by '\(path)'"
        )
        failure.hint = "remove the package, or the file, as its owner"
        return failure
    }
}

/// Output of `app unregister`.
private struct UnregistrationReport: Encodable, CustomStringConvertible {
    var application: ApplicationID
    /// The removed file.
    var removed: String
    /// The registration now in effect; `nil` if there is none.
    var inForce: String?

    var description: String {
        let rest = inForce.map { "; the registration '\($0)' applies now" } ?? ""
        return "\(application): removed '\(removed.forDisplay())'\(rest)"
    }
}
