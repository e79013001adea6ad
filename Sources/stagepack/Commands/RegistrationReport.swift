import Glibc
import StageContainer
import StageModel
import StagePack
import StageSystem
import StagingService
import SystemPackage

extension CommandFailure {
    /// Creates the failure for an application that the command line names and that has no usable registration.
    init(registration error: StagingFailure) {
        self.init(error)
        guard case .notRegistered = error else { return }
        hint = "run 'stagepack app list' to see the applications that are registered"
    }

    /// Creates the failure to write or remove the registration at `path`.
    init(registrations error: FileError, path: FilePath) {
        let hint: String? =
            switch error.errno {
            case _ where error.isOutOfSpace: error.spaceAdvice
            case .readOnlyFileSystem: "make the file system writable"
            case .permissionDenied, .notPermitted: "run it as a user that may write there"
            case .isDirectory: "move away '\(path.string.forDisplay())', which is a directory"
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
