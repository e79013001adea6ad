public import StageContainer
public import StageModel
import StageSystem
public import SystemPackage

/// Errors of reading and fetching packs and their files.
@nonexhaustive
public indirect enum PackStoreError: Error, Equatable, Sendable {
    /// The text is not a valid ID of a pack.
    case invalidID(ValueError)

    /// The pack is not staged, and the store does not fetch it: it is offline or has no fetcher.
    case notStaged(PackID)

    /// The pack, or a file of it, could not be fetched.
    case fetchFailed(PackID, FetchFailure)

    /// The manifest could not be fetched.
    case manifestUnavailable(FetchFailure)

    /// The pack, or a file of it, could not be fetched in time; the next call resumes the
    /// download.
    case timedOut(PackID, after: Duration)

    /// None of the packs searched has an entry at the path.
    case fileNotFound(String)

    /// A file of a pack could not be read.
    case unreadable(FilePath, Errno)

    /// An operation on a container failed.
    case container(ContainerError)

    /// No store is configured.
    case notConfigured

    /// The task was cancelled; the next call resumes the download.
    case cancelled
}

/// The time at which a retry makes sense.
@nonexhaustive
public enum RetryAdvice: String, Equatable, Sendable, Codable {
    /// At once, or when the user requests it: there is no lasting obstacle.
    case now
    /// Later: the network, a server or the disk must recover first.
    case later
    /// Only after a change, for example of the configuration.
    case never
}

extension PackStoreError {
    /// The time at which a retry makes sense.
    public var retryAdvice: RetryAdvice {
        switch self {
        case .invalidID, .fileNotFound, .notConfigured: .never
        case .unreadable(let path, let errno):
            FileError("read", path: path, errno: errno).retryAdvice
        case .container(let error): error.retryAdvice
        case .notStaged: .later
        case .fetchFailed(_, let failure), .manifestUnavailable(let failure): failure.retryAdvice
        case .timedOut, .cancelled: .now
        }
    }
}

extension ContainerError {
    /// The time at which a retry of an operation on the container makes sense.
    fileprivate var retryAdvice: RetryAdvice {
        switch self {
        case .busy, .notStaged: .later
        case .file(let error): error.retryAdvice
        case .missing, .unknownFormat, .notAContainer, .damagedRecord, .noPrevious, .pinned,
            .otherVersion:
            .never
        }
    }
}

extension FileError {
    /// The time at which a retry makes sense: later if a lock, a full disk or a limit is the obstacle.
    fileprivate var retryAdvice: RetryAdvice {
        isHeldByOthers || isOutOfSpace || isRefusedByLimit ? .later : .never
    }
}

extension PackStoreError: CustomStringConvertible {
    /// The error, as a readable sentence fragment.
    public var description: String {
        switch self {
        case .invalidID(let error):
            "not a pack's id: \(error)"
        case .notStaged(let id):
            "pack '\(id)' is not staged"
        case .fetchFailed(let id, let failure):
            // The message of the command contains the name of the pack.
            failure.reason.contains("pack '\(id)'")
                ? failure.reason : "pack '\(id)': \(failure.reason)"
        case .manifestUnavailable(let failure):
            failure.reason
        case .timedOut(let id, let duration):
            "pack '\(id)' did not arrive within \(duration.inWords)"
        case .fileNotFound(let path):
            "none of the searched packs has a file at '\(path.forDisplay())'"
        case .unreadable(let path, let errno):
            "cannot read '\(path)': \(errno)"
        case .container(let error):
            error.description
        case .notConfigured:
            "no container was named"
        case .cancelled:
            "cancelled"
        }
    }
}
