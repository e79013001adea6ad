import Glibc
package import StageModel
package import StageSystem
public import SystemPackage

/// The folders of the registrations of applications.
public enum RegistrationLocations {
    /// The folders that applications install their registrations into; a later one overrides.
    ///
    /// Those of the system, then of the user whose environment this is. Without an environment they are
    /// those of this process: a privileged one has the system's only, since what hooks and timers do
    /// must not depend on the user who started them.
    public static func folders(environment: [String: String]? = nil) -> [FilePath] {
        let environment = environment ?? ProcessEnvironment.current
        var folders: [FilePath] = ["/usr/share/stagepack/apps.d", "/etc/stagepack/apps.d"]
        if let path = environment["XDG_CONFIG_HOME"], path.hasPrefix("/") {
            folders.append(FilePath(path).appending("stagepack/apps.d"))
        } else if let home = environment["HOME"], home.hasPrefix("/") {
            folders.append(FilePath(home).appending(".config/stagepack/apps.d"))
        }
        return folders
    }

    /// Returns the applications that have a registration in the folders, valid or not, in order.
    package static func applications(in folders: [FilePath]) throws(FileError) -> [ApplicationID] {
        var found: Set<ApplicationID> = []
        for folder in folders {
            do throws(FileError) {
                for entry in try Directory.open(folder).entries() {
                    let name = entry.name.string
                    // Names that are no application's are ignored.
                    guard name.hasSuffix(".json"),
                        let id = try? ApplicationID(String(name.dropLast(5)))
                    else { continue }
                    found.insert(id)
                }
            } catch  where error.errno == .noSuchFileOrDirectory {
                continue
            }
        }
        return found.sorted()
    }

    /// Returns the files that register an application, the one that counts last.
    package static func files(of id: ApplicationID, in folders: [FilePath]) -> [FilePath] {
        folders.map { $0.appending("\(id).json") }.filter { FileStatus.exists($0) }
    }
}

extension Registration {
    /// Reads a registration from its file.
    ///
    /// - Parameters:
    ///   - path: The file.
    ///   - isInstalled: Whether it counts on this machine. Then root reads none that other users may change, and no user
    ///     reads one with a root of trust in it.
    /// - Throws: ``RegistrationError`` if it cannot be used.
    package init(
        file path: FilePath,
        isInstalled: Bool = true
    ) throws(RegistrationError) {
        let bytes: [UInt8]
        var writer: String?
        do throws(FileError) {
            // A fifo would hold up a hook.
            let file = try File.open(readingRegular: path)
            if isInstalled { writer = try file.status().foreignWriter }
            bytes = try file.readAll(limit: ManifestLimits.registrationByteCount)
        } catch {
            throw .unreadable(error)
        }
        if let writer, geteuid() == 0 { throw .writable(path, writer) }
        do throws(ManifestError) {
            self = try Registration(json: bytes)
        } catch {
            throw .invalid(path, error)
        }
        if let writer, case .inlineRoot = trust { throw .writable(path, writer) }
        if case .root(let file) = trust, FilePath(file).isRelative {
            let folder = path.absolute.removingLastComponent()
            trust = .root(path: folder.pushing(FilePath(file)).lexicallyNormalized().string)
        }
    }
}

/// The reason why a registration cannot be used.
package enum RegistrationError: Error, Equatable, CustomStringConvertible {
    /// The file cannot be read.
    case unreadable(FileError)
    /// Other users may change the file, for this reason.
    case writable(FilePath, String)
    /// The file is no registration.
    case invalid(FilePath, ManifestError)

    /// The reason as a fragment that names the file.
    package var description: String {
        switch self {
        case .unreadable(let error): "\(error)"
        case .writable(let path, let reason): "registration '\(path)': \(reason)"
        case .invalid(let path, let error): "registration '\(path)': \(error)"
        }
    }
}
