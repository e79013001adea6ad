import FoundationEssentials
import Glibc
import StageModel
import StagePack
import StageSystem
import SystemPackage

/// The folders that applications install their registrations into; a later one overrides.
struct RegistrationFolders {
    let folders: [FilePath]

    /// A registration and the file that it is in.
    struct Found {
        var value: Registration
        var path: FilePath
        /// Files of earlier folders that it stands in front of.
        var overridden: [FilePath]
    }

    /// The folders of the system and of the user whose environment this is.
    ///
    /// Root has the system's only: ``ProcessEnvironment`` names it no other.
    init(environment: [String: String]) {
        folders = RegistrationLocations.folders(environment: environment)
    }

    /// The folder that this user registers applications in: root the system's, others their own.
    var folderForWriting: FilePath? {
        if geteuid() == 0 { return folders.dropFirst().first }
        return folders.count > 2 ? folders.last : nil
    }

    /// Returns the applications that have a registration, valid or not, in order.
    func applications() throws(CommandFailure) -> [ApplicationID] {
        var found: Set<ApplicationID> = []
        for folder in folders {
            do throws(FileError) {
                for entry in try Directory.open(folder).entries() {
                    let name = entry.name.string
                    // Names that are no application's are none of ours.
                    guard name.hasSuffix(".json"),
                        let id = try? ApplicationID(String(name.dropLast(5)))
                    else { continue }
                    found.insert(id)
                }
            } catch  where error.errno == .noSuchFileOrDirectory {
                continue
            } catch {
                throw Self.invalid("\(error)")
            }
        }
        return found.sorted()
    }

    /// Reads the registration of an application by its name.
    func registration(named text: String) throws(CommandFailure) -> Found {
        let id: ApplicationID
        do throws(ValueError) {
            id = try ApplicationID(text)
        } catch {
            throw .usage("--app: \(error)")
        }
        return try registration(of: id)
    }

    /// Reads the registration of an application.
    func registration(of id: ApplicationID) throws(CommandFailure) -> Found {
        var paths = folders.map { $0.appending("\(id).json") }.filter { FileStatus.exists($0) }
        guard let path = paths.popLast() else {
            throw CommandFailure(
                status: .manifestInvalid,
                message: "application '\(id)' is not registered in "
                    + folders.map { "'\($0)'" }.joined(separator: ", "),
                hint: "install its package, or pass --manifest URL",
                retry: .never
            )
        }
        return Found(value: try Self.read(path, for: id), path: path, overridden: paths)
    }

    /// Reads a registration, which has to be the application's.
    static func read(
        _ path: FilePath,
        for id: ApplicationID
    ) throws(CommandFailure) -> Registration {
        let registration = try read(path)
        guard registration.application == id else {
            let found = registration.application
            throw invalid("registration '\(path)': expected application '\(id)', found '\(found)'")
        }
        return registration
    }

    /// Reads a registration.
    static func read(_ path: FilePath) throws(CommandFailure) -> Registration {
        let bytes: [UInt8]
        do throws(FileError) {
            // A fifo would hold up a hook.
            bytes = try File.open(readingRegular: path).readAll(
                limit: ManifestLimits.registrationByteCount
            )
        } catch {
            throw invalid("\(error)")
        }
        do throws(ManifestError) {
            return try Registration(json: bytes)
        } catch {
            throw invalid("registration '\(path)': \(error)")
        }
    }

    private static func invalid(_ message: String) -> CommandFailure {
        CommandFailure(
            status: .manifestInvalid,
            message: message,
            hint: "correct the file, or install the application's package again",
            retry: .never
        )
    }
}
