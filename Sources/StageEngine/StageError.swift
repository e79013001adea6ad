public import StageArchive
public import StageContainer
import StageFrame
import StageIndex
public import StageModel
import StageSystem
public import StageTransfer
public import StageTrust

/// Why something could not be staged, by phase.
@nonexhaustive
public indirect enum StageError: Error, Equatable, Sendable {
    /// The manifest could not be had from any of its URLs.
    case manifestUnavailable(TransferError)

    /// What was received is not a manifest.
    case manifestInvalid(url: String, ManifestError)

    /// The manifest cannot be trusted as asked for, or is another application's.
    case manifestRefused(url: String, ManifestRefusal)

    /// The manifest, or the signed metadata that names it, is not what the keys of the root that the
    /// application is registered with have signed, or has expired.
    case untrusted(url: String, TrustError)

    /// What a container has stored of a manifest and of the signed metadata that names it does not belong
    /// together: another program has changed it, or a run ended halfway.
    case storedUntrusted(url: String, TrustError)

    /// The manifest has no such pack.
    case unknownPack(PackID)

    /// The pack does not fit on the file system of the container.
    case noSpace(needed: ByteCount, available: ByteCount)

    /// The archive could not be fetched.
    case transfer(TransferError)

    /// The archive holds what a pack may not hold, or is damaged.
    case content(ArchiveError)

    /// What describes the content of the pack cannot be read.
    case index(reason: String)

    /// No file of the pack is to be had by itself at the path.
    case noSuchFile(ContentPath, FileFault)

    /// The archive holds less than the manifest declares.
    case incompleteContent(declared: ContentFigures, actual: ContentFigures)

    /// The container could not be used.
    case container(ContainerError)

    /// The task was cancelled, or its time was up; what was received stays.
    case cancelled
}

/// Why a manifest is not accepted although it is well formed.
public indirect enum ManifestRefusal: Error, Equatable, Sendable {
    /// It would come over plain HTTP, where anybody on the way can replace it.
    case insecure
    /// Its revision is older than the one that was accepted before.
    case wentBack(accepted: Int, offered: Int)
    /// It is for another application.
    case otherApplication(expected: ApplicationID, found: ApplicationID)
    /// Its application has a root of trust, and it was asked for without one.
    case unsigned
    /// It came without a root of trust, and names a pack of another application in the same container,
    /// which has one.
    case unsignedPack(PackID, of: ApplicationID)
    /// Its application is registered with another root of trust than it was asked for with.
    case otherRoot(ApplicationID)
    /// The registration of its application, which may name a root of trust, cannot be used, for this reason.
    case unusableRegistration(String)
    /// It came over the network and names a local file as content.
    case localContent(url: String)
    /// It does not hold for the version of the application that is installed.
    case otherVersion(required: String, installed: String)
}

/// Why a file of a pack is not to be had by itself.
public enum FileFault: Equatable, Sendable {
    /// The pack has nothing at the path.
    case isMissing
    /// The pack has a directory there.
    case isDirectory
    /// The pack is an archive, which is fetched as a whole.
    case packHasNoIndex
    /// The pack does not hold for the version of the application that is installed.
    case isForOtherVersion(required: String, installed: String)
}

/// How much a pack holds.
public struct ContentFigures: Equatable, Sendable {
    /// Files and symbolic links.
    public var fileCount: Int
    /// The sum of the sizes of the files.
    public var size: ByteCount

    /// Creates the figures from their parts.
    public init(fileCount: Int, size: ByteCount) {
        self.fileCount = fileCount
        self.size = size
    }
}

extension ManifestRefusal: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .insecure:
            "plain HTTP, and the registration carries no root of trust"
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
    /// The reason, as a sentence fragment a person can read.
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
            "not enough space: \(needed) needed, \(max(available, .zero)) free"
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
    /// The reason, as a sentence fragment a person can read.
    func description(of path: ContentPath) -> String {
        switch self {
        case .isMissing:
            "it has no file '\(path)'"
        case .isDirectory:
            "'\(path)' is a directory, and files are fetched one by one"
        case .packHasNoIndex:
            "it has no index, so '\(path)' is not to be had without the whole pack"
        case .isForOtherVersion(let required, let installed):
            "it requires application version '\(required)', found '\(installed)'"
        }
    }
}

extension ContentFigures: CustomStringConvertible {
    /// The figures as people read them: `12 files with 18350112 bytes`.
    public var description: String {
        "\(fileCount.quantity(of: "file")) with \(size.rawValue.quantity(of: "byte"))"
    }
}

/// An error of a lower module, which is a case of ``StageError``.
protocol StageErrorCause: Error {
    /// The error with its phase.
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
    /// Returns the result of `body`, with its failure as a case of this type.
    static func wrapping<Result, Cause: StageErrorCause>(
        _ body: () throws(Cause) -> Result
    ) throws(StageError) -> Result {
        do throws(Cause) {
            return try body()
        } catch {
            throw error.stageError
        }
    }

    /// Runs `body` on a thread that may block, with its failure as a case of this type.
    static func blocking<Result: Sendable, Cause: StageErrorCause>(
        _ body: @escaping @Sendable () throws(Cause) -> Result
    ) async throws(StageError) -> Result {
        try await withBlockingThread { () throws(StageError) in try wrapping(body) }
    }
}

extension StageError {
    /// Whether a full file system is the reason: it may pass.
    public var isOutOfSpace: Bool {
        switch self {
        case .noSpace, .transfer(.outOfSpace): true
        case .content(.fileSystem(let error)), .container(.file(let error)),
            .transfer(.storage(let error)):
            error.isOutOfSpace
        default: false
        }
    }
}
