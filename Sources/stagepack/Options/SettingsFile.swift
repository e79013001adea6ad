import Logging
import StageModel
import StagePack
import StageSystem
import SystemPackage

/// The configuration file of the command, which the administrator of a machine writes for all users.
enum SettingsFile {
    /// The file.
    static let path: FilePath = "/etc/stagepack/stagepack.json"

    /// True if there is a file, valid or not.
    static var exists: Bool { FileStatus.exists(path) }

    /// Returns the settings of the file, which is read once; those without a value if there is none.
    ///
    /// - Throws: ``CommandFailure`` if the file cannot be read or is not valid, or if other users can change it.
    static func settings() throws(CommandFailure) -> CommandSettings { try result.get() }

    /// Returns the file of certificate authorities that the settings name.
    ///
    /// - Throws: ``CommandFailure`` if the file cannot be read, or, for root, if other users can change it.
    static func authorities(_ settings: CommandSettings) throws(CommandFailure) -> FilePath? {
        guard let path = settings.certificateAuthorities.map({ FilePath($0) }) else { return nil }
        let status: FileStatus
        do throws(FileError) {
            let file = try File.open(readingRegular: path)
            status = try file.status()
        } catch {
            throw failure("certificateAuthorities: \(error)", hint: correction)
        }
        if UserIdentity.current.user == 0, let writer = status.foreignWriter {
            throw failure(
                "certificateAuthorities: '\(path.string.forDisplay())': \(writer)",
                hint: "as root, run '\(status.commandsForOwner(of: path))'"
            )
        }
        return path
    }

    private static let result = Result.catching { () throws(CommandFailure) in try read() }

    private static func read() throws(CommandFailure) -> CommandSettings {
        let bytes: [UInt8]
        let writer: String?
        do throws(FileError) {
            // Opening a FIFO would block a hook.
            let file = try File.open(readingRegular: path)
            writer = try file.status().foreignWriter
            // Reads one byte more than the limit, so that the error is about the size.
            bytes = try file.readAll(limit: CommandSettings.byteLimit + 1)
        } catch {
            if error.errno == .noSuchFileOrDirectory { return CommandSettings() }
            throw failure("\(error)", hint: correction)
        }
        if let writer {
            throw failure(writer, hint: "as root, run 'chown root: \(path) && chmod 644 \(path)'")
        }
        do throws(ManifestError) {
            let settings = try CommandSettings(json: bytes)
            Log.logger.debug("The settings of the machine were read", metadata: ["path": "\(path)"])
            return settings
        } catch {
            throw failure("\(error)", hint: correction)
        }
    }

    private static let correction = "as root, correct or remove '\(path)'"

    private static func failure(_ message: String, hint: String) -> CommandFailure {
        CommandFailure(
            status: .configurationInvalid,
            message: "configuration file '\(path)': \(message)",
            hint: hint,
            retryAdvice: .never
        )
    }
}
