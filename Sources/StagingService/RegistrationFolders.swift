import FoundationEssentials
import Glibc
import StageContainer
package import StageModel
import StageSystem
package import SystemPackage

/// The folders with the registrations of applications; a later folder overrides earlier ones.
package struct RegistrationFolders {
    /// The folders, the one with the least precedence first.
    package let folders: [FilePath]

    /// A registration and its file.
    package struct Found {
        /// The registration.
        package var value: Registration
        /// The file that it was read from.
        package var path: FilePath
        /// Files of earlier folders that this one overrides.
        package var overridden: [FilePath]

        /// Creates the value for a registration that was read from `path`.
        package init(value: Registration, path: FilePath, overridden: [FilePath] = []) {
            self.value = value
            self.path = path
            self.overridden = overridden
        }
    }

    /// Returns the file that holds when the registration at `path` is removed, if there is one.
    package func registration(besides path: FilePath) -> FilePath? {
        guard let name = path.lastComponent,
            let index = folders.firstIndex(of: path.removingLastComponent())
        else { return nil }
        return folders[..<index].map { $0.appending(name) }.last { FileStatus.exists($0) }
    }

    /// Creates the list of the system's folders and of those of the user whose environment this is.
    ///
    /// Root has only the system's folders, since ``ProcessEnvironment`` contains no others.
    package init(environment: [String: String]) {
        folders = RegistrationLocations.folders(environment: environment)
    }

    /// The folder in which this user registers applications: for root the system's, for others their own.
    package var folderForWriting: FilePath? {
        if geteuid() == 0 { return folders.dropFirst().first }
        return folders.count > 2 ? folders.last : nil
    }

    /// Returns the applications that have a registration, valid or not, in order.
    package func applications() throws(StagingFailure) -> [ApplicationID] {
        do throws(FileError) {
            return try RegistrationLocations.applications(in: folders)
        } catch {
            throw .registration("\(error)")
        }
    }

    /// A file that seems to be a registration and is not used because of its name.
    package struct MisnamedFile: CustomStringConvertible {
        /// The path of the file.
        package let path: FilePath

        /// The fault, as a fragment that names the file.
        package var description: String {
            "registration '\(path.string.escapedForDisplay)' is ignored: its name has to be the application's identifier "
                + "and '.json'"
        }
    }

    /// Returns the files that seem to be registrations and are not used because of their names.
    package func misnamedFiles() -> [MisnamedFile] {
        RegistrationLocations.misnamedFiles(in: folders).map(MisnamedFile.init)
    }

    /// Returns the command with which root lets all users read a registration of the system; `nil` if they can, or if
    /// it is not one of the system.
    package static func commandToShow(_ path: FilePath) -> String? {
        guard RegistrationLocations.ofSystem.contains(path.removingLastComponent()),
            let status = FileStatus(following: path), status.mode & 0o004 == 0
        else { return nil }
        return "chmod a+r \(path.string.escapedForDisplay)"
    }

    /// Reads the registration of the application with this name.
    package func registration(named text: String) throws(StagingFailure) -> Found {
        try registration(of: try identifier(named: text))
    }

    /// Parses the identifier of an application.
    package func identifier(named text: String) throws(StagingFailure) -> ApplicationID {
        do throws(ValueError) {
            return try ApplicationID(text)
        } catch {
            throw .invalidRequest("--app: \(error)")
        }
    }

    /// Reads the registration of an application.
    package func registration(of id: ApplicationID) throws(StagingFailure) -> Found {
        var paths = RegistrationLocations.files(of: id, in: folders)
        guard let path = paths.popLast() else {
            throw .notRegistered(notRegistered(id))
        }
        return Found(value: try Self.read(path, for: id), path: path, overridden: paths)
    }

    /// Returns the message that an application is not registered, with the most similar registered name, or
    /// else the registered names.
    private func notRegistered(_ id: ApplicationID) -> String {
        // The message lists no applications if a folder cannot be read.
        let known = (try? applications())?.map(\.text) ?? []
        let message = "application '\(id)' is not registered"
        let note = noteOfMissingHome
        guard !known.isEmpty else {
            return "\(message), nor is any other, in "
                + folders.map { "'\($0)'" }.joined(separator: ", ") + note
        }
        if let meant = id.text.mostSimilar(in: known) {
            return "\(message): did you mean '\(meant)'?"
        }
        let valid = known.filter { (try? registration(named: $0)) != nil }
        guard !valid.isEmpty else {
            return "\(message), and no other registration can be used" + note
        }
        let shown = valid.prefix(Self.shownApplications).map { "'\($0)'" }.joined(separator: ", ")
        let others = valid.count - Self.shownApplications
        return "\(message): registered are \(shown)" + (others > 0 ? " and \(others) more" : "")
            + note
    }

    /// A fragment that the environment names no folder of this user, for a message that an application is not registered;
    /// empty if it names one, and for root.
    package var noteOfMissingHome: String {
        guard geteuid() != 0, folderForWriting == nil else { return "" }
        return "; HOME is not set, so registrations of this user are not read"
    }

    /// Maximum number of applications in a message.
    private static let shownApplications = 8

    /// Reads a registration, and checks that it is for this application.
    package static func read(
        _ path: FilePath,
        for id: ApplicationID
    ) throws(StagingFailure) -> Registration {
        let registration = try read(path, isInstalled: true)
        guard registration.application == id else {
            let found = registration.application
            throw .registration(
                "registration '\(path)': expected application '\(id)', found '\(found)'",
                file: path
            )
        }
        return registration
    }

    /// Reads a registration.
    ///
    /// - Parameters:
    ///   - path: The file.
    ///   - isInstalled: Pass `true` for a registration that is in effect on this machine, `false` for a file
    ///     that was named to a command.
    /// - Returns: The registration.
    /// - Throws: ``StagingFailure/registration(_:)`` if it cannot be used.
    package static func read(
        _ path: FilePath,
        isInstalled: Bool = false
    ) throws(StagingFailure) -> Registration {
        do throws(RegistrationError) {
            return try Registration(file: path, isInstalled: isInstalled)
        } catch {
            throw .registration("\(error)", file: isInstalled ? path : nil)
        }
    }
}
