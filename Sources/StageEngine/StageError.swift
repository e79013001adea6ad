public import StageArchive
public import StageContainer
import StageFrame
import StageIndex
public import StageModel
import StageSystem
public import StageTransfer
public import StageTrust

/// Errors of staging, by phase.
@nonexhaustive
public indirect enum StageError: Error, Equatable, Sendable {
    /// The manifest could not be downloaded from any of its URLs.
    case manifestUnavailable(TransferError)

    /// The received content is not a valid manifest.
    case manifestInvalid(url: String, ManifestError)

    /// The manifest is well formed but not accepted, for example because it belongs to another application.
    case manifestRefused(url: String, ManifestRefusal)

    /// The manifest, or the signed metadata that names it, has expired or is not signed by the keys of the
    /// root that the application is registered with.
    case untrusted(url: String, TrustError)

    /// The stored manifest does not match the stored signed metadata: another program has changed one of them,
    /// or a run ended between writing them.
    case storedUntrusted(url: String, TrustError)

    /// The manifest does not contain the pack.
    case unknownPack(PackID)

    /// The pack or file does not fit on the file system of the container.
    case noSpace(needed: ByteCount, available: ByteCount)

    /// The pack or file needs more inodes than are free on the file system of the container.
    case noInodes(needed: Int, available: Int)

    /// The index of the pack needs more memory than is available.
    case noMemory(needed: ByteCount, available: ByteCount)

    /// The content could not be downloaded.
    case transfer(TransferError)

    /// The archive is damaged or contains entries that a pack must not contain.
    case content(ArchiveError)

    /// The index of the pack is unusable.
    case index(reason: String)

    /// A file of the pack cannot be fetched individually.
    case noSuchFile(ContentPath, FileFault)

    /// The content differs from the file count or size that the manifest declares.
    case incompleteContent(declared: ContentFigures, actual: ContentFigures)

    /// An operation on the container failed.
    case container(ContainerError)

    /// The task was cancelled or its deadline passed; received bytes stay for a later run.
    case cancelled
}

/// Reasons to refuse a well-formed manifest.
@nonexhaustive
public indirect enum ManifestRefusal: Error, Equatable, Sendable {
    /// The URL is plain http, so that an attacker on the network could replace the manifest.
    case insecure
    /// The revision is lower than that of the manifest accepted before.
    case wentBack(accepted: Int, offered: Int)
    /// The manifest is for another application.
    case otherApplication(expected: ApplicationID, found: ApplicationID)
    /// The application has a root of trust, and the manifest was requested without one.
    case unsigned
    /// The manifest was requested without a root of trust, and names a pack of another application in the same
    /// container, which has one.
    case unsignedPack(PackID, of: ApplicationID)
    /// The application is registered with another root of trust than the request used.
    case otherRoot(ApplicationID)
    /// The registration of the application, which may name a root of trust, is unusable; the value is the
    /// reason.
    case unusableRegistration(String)
    /// The manifest came over the network and names a local file as content.
    case localContent(url: String)
    /// The manifest requires other versions of the application than the installed one.
    case otherVersion(required: String, installed: String)
}

/// Reasons why a file of a pack cannot be fetched individually.
@nonexhaustive
public enum FileFault: Equatable, Sendable {
    /// The pack has no entry at the path.
    case isMissing
    /// The entry at the path is a directory.
    case isDirectory
    /// The pack is an archive without an index, and can only be downloaded as a whole.
    case packHasNoIndex
    /// The pack requires other versions of the application than the installed one.
    case isForOtherVersion(required: String, installed: String)
}

/// File count, size and directory count of a pack's content.
public struct ContentFigures: Equatable, Sendable {
    /// The number of files and symbolic links.
    public var fileCount: Int
    /// The total size of the files, in bytes.
    public var size: ByteCount
    /// The number of directories, without that of the pack itself; `nil` if the manifest does not state it.
    public var directoryCount: Int?

    /// Creates the figures from their parts.
    public init(fileCount: Int, size: ByteCount, directoryCount: Int? = nil) {
        self.fileCount = fileCount
        self.size = size
        self.directoryCount = directoryCount
    }
}

extension ManifestRefusal: CustomStringConvertible {
    /// The reason, as a readable sentence fragment.
    public var description: String {
        switch self {
        case .insecure:
            "plain HTTP, without a root of trust to verify it with"
        case .unsigned:
            "its application has a root of trust, and it was asked for without one"
        case .unsignedPack(let pack, let application):
            "it comes without a root of trust, and its pack '\(pack)' is one of application "
                + "'\(application)', which has a root and the same container"
        case .otherRoot(let application):
            "application '\(application)' is registered with another root of trust"
        case .unusableRegistration(let reason):
            "the registration of its application may name a root of trust, and cannot be used: \(reason)"
        case .wentBack(let accepted, let offered):
            "it went back from revision \(accepted) to revision \(offered)"
        case .otherApplication(let expected, let found):
            "expected application '\(expected)', found '\(found)'"
        case .otherVersion(let required, let installed):
            "it requires application version '\(required)', found '\(installed)'"
        case .localContent(let url):
            "it came over the network and names the local file '\(url.forDisplay())'"
        }
    }
}

extension StageError: CustomStringConvertible {
    /// The error, as a readable sentence fragment.
    public var description: String {
        switch self {
        case .manifestUnavailable(let error):
            "the manifest is not available: \(error)"
        case .manifestInvalid(let url, let error):
            "the manifest at '\(url.forDisplay())' is not valid: \(error)"
        case .manifestRefused(let url, let refusal):
            "the manifest at '\(url.forDisplay())' is refused: \(refusal)"
        case .untrusted(let url, let error):
            "the manifest at '\(url.forDisplay())' is not trusted: \(error)"
        case .storedUntrusted(let url, let error):
            "the stored manifest of '\(url.forDisplay())' is damaged: \(error)"
        case .unknownPack(let id):
            "the manifest has no pack '\(id)'"
        case .noSpace(let needed, let available):
            "not enough space: \(needed) needed, of which \(Planner.reserve) stay free; \(max(available, .zero)) are free, "
                + "\(needed - max(available, .zero)) are missing"
        case .noInodes(let needed, let available):
            "not enough space: \(needed.quantity(of: "inode")) needed, of which \(AvailableSpace.reservedInodes) stay free; "
                + "free: \(max(available, 0)), missing: \(needed - max(available, 0))"
        case .noMemory(let needed, let available):
            "not enough memory for the index: \(needed) needed, \(available) available"
        case .transfer(let error):
            error.description
        case .content(let error):
            error.description
        case .index(let reason):
            "the index is not usable: \(reason)"
        case .noSuchFile(let path, let fault):
            fault.description(of: path)
        case .incompleteContent(let declared, let actual):
            "the pack holds \(actual), expected \(declared)"
        case .container(let error):
            error.description
        case .cancelled:
            "interrupted"
        }
    }
}

extension FileFault {
    /// Returns the reason as a readable sentence fragment.
    func description(of path: ContentPath) -> String {
        switch self {
        case .isMissing:
            "it has no file '\(path)'"
        case .isDirectory:
            "'\(path)' is a directory, and files are fetched one by one"
        case .packHasNoIndex:
            "it is not an indexed pack, so '\(path)' cannot be fetched without the whole pack"
        case .isForOtherVersion(let required, let installed):
            "it requires application version '\(required)', found '\(installed)'"
        }
    }
}

extension ContentFigures: CustomStringConvertible {
    /// The figures in readable form: `12 files with 18350112 bytes and 3 directories`.
    public var description: String {
        let files = "\(fileCount.quantity(of: "file")) with \(size.rawValue.quantity(of: "byte"))"
        guard let directoryCount else { return files }
        return "\(files) and \(directoryCount.quantity(of: "directory", plural: "directories"))"
    }
}

/// An error of a lower module that maps to a case of ``StageError``.
protocol StageErrorCause: Error {
    /// The corresponding error of staging.
    var stageError: StageError { get }
}

extension FileError: StageErrorCause {
    var stageError: StageError { .container(.file(self)) }
}

extension ContainerError: StageErrorCause {
    var stageError: StageError { .container(self) }
}

extension TransferError: StageErrorCause {
    var stageError: StageError { self == .cancelled ? .cancelled : .transfer(self) }
}

extension ArchiveError: StageErrorCause {
    var stageError: StageError { self == .cancelled ? .cancelled : .content(self) }
}

extension IndexError: StageErrorCause {
    var stageError: StageError { .index(reason: description) }
}

extension FrameError: StageErrorCause {
    var stageError: StageError { .index(reason: description) }
}

extension StageError {
    /// Returns the result of `body`, or throws its error as a case of this type.
    static func wrapping<Result, Cause: StageErrorCause>(
        _ body: () throws(Cause) -> Result
    ) throws(StageError) -> Result {
        do throws(Cause) {
            return try body()
        } catch {
            throw error.stageError
        }
    }

    /// Runs `body` on a thread that may block, and throws its error as a case of this type.
    static func blocking<Result: Sendable, Cause: StageErrorCause>(
        _ body: @escaping @Sendable () throws(Cause) -> Result
    ) async throws(StageError) -> Result {
        try await withBlockingThread { () throws(StageError) in try wrapping(body) }
    }
}

extension StageError {
    /// `true` if the cause is a full file system, so that a retry may succeed.
    public var isOutOfSpace: Bool {
        switch self {
        case .noSpace, .noInodes, .transfer(.outOfSpace): true
        case .content(.fileSystem(let error)), .container(.file(let error)),
            .transfer(.storage(let error)):
            error.isOutOfSpace
        default: false
        }
    }
}
