import StageModel
import StageSystem
import SystemPackage

/// The folders that applications install their registrations into; a later one overrides.
struct RegistrationFolders {
    let folders: [FilePath]

    /// The folders of the system and of the user whose environment this is.
    init(environment: [String: String]) {
        var folders: [FilePath] = ["/usr/share/stagepack/apps.d", "/etc/stagepack/apps.d"]
        if let path = environment["XDG_CONFIG_HOME"], path.hasPrefix("/") {
            folders.append(FilePath(path).appending("stagepack/apps.d"))
        } else if let home = environment["HOME"], home.hasPrefix("/") {
            folders.append(FilePath(home).appending(".config/stagepack/apps.d"))
        }
        self.folders = folders
    }

    /// Reads the registration of an application.
    func registration(_ text: String) throws(CommandFailure) -> Registration {
        let id: ApplicationID
        do throws(ValueError) {
            id = try ApplicationID(text)
        } catch {
            throw .usage("--app: \(error)")
        }
        for folder in folders.reversed() {
            let path = folder.appending("\(id).json")
            guard FileStatus.exists(path) else { continue }
            return try read(path, id)
        }
        throw CommandFailure(
            status: .manifestInvalid,
            message: "application '\(id)' is not registered in "
                + folders.map { "'\($0)'" }.joined(separator: ", "),
            hint: "install its package, or pass --manifest URL",
            retry: .never
        )
    }

    private func read(_ path: FilePath, _ id: ApplicationID) throws(CommandFailure) -> Registration
    {
        let bytes: [UInt8]
        do throws(FileError) {
            bytes = try File.open(reading: path).readAll(
                limit: ManifestLimits.registrationByteCount
            )
        } catch {
            throw invalid("\(error)")
        }
        let registration: Registration
        do throws(ManifestError) {
            registration = try Registration(json: bytes)
        } catch {
            throw invalid("registration '\(path)': \(error)")
        }
        guard registration.application == id else {
            let found = registration.application
            throw invalid("registration '\(path)': expected application '\(id)', found '\(found)'")
        }
        return registration
    }

    private func invalid(_ message: String) -> CommandFailure {
        CommandFailure(
            status: .manifestInvalid,
            message: message,
            hint: "correct the file, or install the application's package again",
            retry: .never
        )
    }
}
