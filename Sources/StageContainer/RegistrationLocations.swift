import Glibc
package import StageModel
package import StageSystem
package import SystemPackage

/// The directories of applications' registrations.
package enum RegistrationLocations {
    /// The directory into which packages of applications install their registrations.
    package static let ofPackages: FilePath = "/usr/share/stagepack/apps.d"

    /// The directories of the system's registrations.
    package static let ofSystem: [FilePath] = [ofPackages, "/etc/stagepack/apps.d"]

    /// Returns the directories that applications install their registrations into; later ones take precedence.
    ///
    /// First the system's, then those of the user whose environment is given, by default that of this process.
    /// A privileged process uses the system's only, since hooks and timers must not depend on the user who
    /// started them.
    package static func folders(environment: [String: String]? = nil) -> [FilePath] {
        let environment = environment ?? ProcessEnvironment.current
        var folders = ofSystem
        if let path = environment["XDG_CONFIG_HOME"], path.hasPrefix("/") {
            folders.append(FilePath(path).appending("stagepack/apps.d"))
        } else if let home = environment["HOME"], home.hasPrefix("/") {
            folders.append(FilePath(home).appending(".config/stagepack/apps.d"))
        }
        return folders
    }

    /// Returns the applications that have a registration in the folders, valid or not, in order.
    ///
    /// Leaves out folders that this user may not read, as ``files(of:in:)`` does; `doctor` reports them.
    package static func applications(in folders: [FilePath]) throws(FileError) -> [ApplicationID] {
        var found: Set<ApplicationID> = []
        for folder in folders {
            do throws(FileError) {
                for entry in try Directory.open(folder).entries() {
                    let name = entry.path.string
                    // Ignores names that are not IDs of applications.
                    guard name.hasSuffix(".json"),
                        let id = try? ApplicationID(String(name.dropLast(5)))
                    else { continue }
                    found.insert(id)
                }
            } catch
                where error.errno == .noSuchFileOrDirectory || error.errno == .permissionDenied
            {
                continue
            }
        }
        return found.sorted()
    }

    /// Returns the files that seem to be registrations and are not used, because their name is not the identifier of
    /// an application and `.json`.
    ///
    /// These are files whose name ends in `.json`, in any case, and other files with the content of a registration, except
    /// copies that package managers keep, as `ID.json.dpkg-old`. Leaves out folders that cannot be read.
    package static func misnamedFiles(in folders: [FilePath]) -> [FilePath] {
        folders.flatMap { folder -> [FilePath] in
            // `doctor` reports folders that cannot be read.
            let entries = (try? Directory.open(folder).entries()) ?? []
            return entries.filter { isMisnamed($0.path.string, in: folder) }
                .map { folder.appending($0.name) }.sorted { $0.string < $1.string }
        }
    }

    private static func isMisnamed(_ name: String, in folder: FilePath) -> Bool {
        let isNamed =
            name.hasSuffix(".json") && (try? ApplicationID(String(name.dropLast(5)))) != nil
        if isNamed || name.hasPrefix(".") { return false }
        let lowercase = name.lowercased()
        if lowercase.hasSuffix(".json") { return true }
        guard !lowercase.contains(".json") else { return false }
        return (try? Registration(file: folder.appending(name), isInstalled: false)) != nil
    }

    /// Returns the existing registration files of an application; the last one is effective.
    ///
    /// Includes a dangling link, which cannot be read as a registration.
    package static func files(of id: ApplicationID, in folders: [FilePath]) -> [FilePath] {
        folders.map { $0.appending("\(id).json") }.filter { FileStatus.existsAsEntry($0) }
    }

    /// Returns the effective registration of an application; `nil` if there is none, or if it cannot be used.
    package static func registration(
        of id: ApplicationID,
        in folders: [FilePath]
    ) -> Registration? {
        // The run of the application reports that its registration cannot be used.
        guard let path = files(of: id, in: folders).last,
            let found = try? Registration(file: path), found.application == id
        else { return nil }
        return found
    }

    /// Returns the other applications of a registration's group whose versions of packs may stay staged instead of the
    /// application's own.
    ///
    /// For an application with a root, only applications with the same root count: its keys have to sign the content of its
    /// packs. Omits applications whose registration cannot be used. Reads the registrations of all applications.
    package static func applications(
        trustedAs own: Registration,
        in folders: [FilePath]
    ) -> Set<ApplicationID> {
        // `doctor` reports folders that cannot be read.
        let known = (try? applications(in: folders)) ?? []
        let trusted = known.filter { id in
            guard id != own.application, let other = registration(of: id, in: folders),
                other.group == own.group
            else { return false }
            return own.trust == .transport || other.trust == own.trust
        }
        return Set(trusted)
    }
}

extension Registration {
    /// Reads a registration from its file.
    ///
    /// - Parameters:
    ///   - path: The file.
    ///   - isInstalled: `true` if the registration is effective on this machine. Then root rejects files that
    ///     other users can change, and every user rejects such a file if it contains a root of trust.
    /// - Throws: ``RegistrationError`` if the registration cannot be used.
    package init(
        file path: FilePath,
        isInstalled: Bool = true
    ) throws(RegistrationError) {
        let bytes: [UInt8]
        var writer: RegistrationError?
        do throws(FileError) {
            // Opening a FIFO would block a hook.
            let file = try File.open(readingRegular: path)
            let status = try file.status()
            if isInstalled, let reason = status.foreignWriter {
                writer = .writable(path, reason, remedy: status.commandsForOwner(of: path))
            }
            bytes = try file.readAll(limit: ManifestLimits.registrationByteCount)
        } catch {
            throw .unreadable(error)
        }
        if let writer, geteuid() == 0 { throw writer }
        do throws(ManifestError) {
            self = try Registration(json: bytes)
        } catch {
            throw .invalid(path, error)
        }
        if let writer, case .inlineRoot = trust { throw writer }
        if case .root(let file) = trust, FilePath(file).isRelative {
            let folder = path.absolute.removingLastComponent()
            trust = .root(path: folder.pushing(FilePath(file)).lexicallyNormalized().string)
        }
    }
}

/// Errors of reading a registration.
package indirect enum RegistrationError: Error, Equatable, CustomStringConvertible {
    /// The file cannot be read.
    case unreadable(FileError)
    /// Other users can change the file, for the given reason, until the commands of the remedy have run.
    case writable(FilePath, String, remedy: String)
    /// The content of the file is not a valid registration.
    case invalid(FilePath, ManifestError)

    /// The error, as a sentence fragment that names the file.
    package var description: String {
        switch self {
        case .unreadable: fault
        case .writable(let path, _, _), .invalid(let path, _):
            "registration '\(path.string.escapedForDisplay)': \(fault)"
        }
    }

    /// The error without the name of the file, except for ``unreadable(_:)``, whose description always contains it.
    package var fault: String {
        switch self {
        case .unreadable(let error): "\(error)".escapedForDisplay
        case .writable(_, let reason, let remedy):
            "\(reason.escapedForDisplay): run '\(remedy.escapedForDisplay)'"
        case .invalid(_, let error): "\(error)"
        }
    }
}
