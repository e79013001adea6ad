import FoundationEssentials
import Glibc
import StageContainer
package import StageModel
import StageSystem
package import SystemPackage

/// The folders that applications install their registrations into; a later one overrides.
package struct RegistrationFolders {
    package let folders: [FilePath]

    /// A registration and the file that it is in.
    package struct Found {
        package var value: Registration
        package var path: FilePath
        /// Files of earlier folders that it stands in front of.
        package var overridden: [FilePath]
    }

    /// The folders of the system and of the user whose environment this is.
    ///
    /// Root has the system's only: ``ProcessEnvironment`` names it no other.
    package init(environment: [String: String]) {
        folders = RegistrationLocations.folders(environment: environment)
    }

    /// The folder that this user registers applications in: root the system's, others their own.
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

    /// Reads the registration of an application by its name.
    package func registration(named text: String) throws(StagingFailure) -> Found {
        try registration(of: try identifier(named: text))
    }

    /// Reads the identifier of an application.
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

    /// The message that an application is not registered, with the one that may be meant, else those that are.
    private func notRegistered(_ id: ApplicationID) -> String {
        // A folder that cannot be read has none to name.
        let known = (try? applications())?.map(\.text) ?? []
        let message = "application '\(id)' is not registered"
        guard !known.isEmpty else {
            return "\(message), nor is any other, in "
                + folders.map { "'\($0)'" }.joined(separator: ", ")
        }
        if let meant = id.text.mostSimilar(in: known) {
            return "\(message): did you mean '\(meant)'?"
        }
        let shown = known.prefix(Self.shownApplications).map { "'\($0)'" }.joined(separator: ", ")
        let others = known.count - Self.shownApplications
        return "\(message): registered are \(shown)" + (others > 0 ? " and \(others) more" : "")
    }

    /// The number of applications that a message names.
    private static let shownApplications = 8

    /// Reads a registration, which has to be the application's.
    package static func read(
        _ path: FilePath,
        for id: ApplicationID
    ) throws(StagingFailure) -> Registration {
        let registration = try read(path, isInstalled: true)
        guard registration.application == id else {
            let found = registration.application
            throw .registration(
                "registration '\(path)': expected application '\(id)', found '\(found)'"
            )
        }
        return registration
    }

    /// Reads a registration.
    ///
    /// - Parameters:
    ///   - path: The file.
    ///   - isInstalled: Whether it counts on this machine, and not only for a command that is given its path.
    /// - Returns: The registration.
    /// - Throws: ``StagingFailure/registration(_:)`` if it cannot be used.
    package static func read(
        _ path: FilePath,
        isInstalled: Bool = false
    ) throws(StagingFailure) -> Registration {
        do throws(RegistrationError) {
            return try Registration(file: path, isInstalled: isInstalled)
        } catch {
            throw .registration("\(error)")
        }
    }
}
