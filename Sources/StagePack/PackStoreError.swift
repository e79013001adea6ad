public import StageContainer
public import StageModel
public import SystemPackage

/// Why a pack or a file of a pack could not be had.
@nonexhaustive
public indirect enum PackStoreError: Error, Equatable, Sendable {
    /// The text is not a pack's id.
    case invalidID(ValueError)

    /// The pack is not staged, and the store fetches nothing: it is offline or has no fetcher.
    case notStaged(PackID)

    /// The pack, or the file of it, could not be fetched.
    case fetchFailed(PackID, FetchFailure)

    /// The manifest could not be fetched.
    case manifestUnavailable(FetchFailure)

    /// The pack, or the file of it, was not there in time; the fetch can be continued.
    case deadlineExceeded(PackID, after: Duration)

    /// No pack that was looked in has a file at the path.
    case fileNotFound(String)

    /// A file of a pack could not be read.
    case unreadable(FilePath, Errno)

    /// The container could not be used.
    case container(ContainerError)

    /// The store was not told which container to read.
    case notConfigured

    /// The task was cancelled; the fetch can be continued.
    case cancelled
}

/// When trying again makes sense.
public enum RetryAdvice: String, Equatable, Sendable, Codable {
    /// At once, or whenever the user asks: nothing stands in the way for good.
    case now
    /// Later: the network, a server or the disk has to recover first.
    case later
    /// Not before somebody has changed something.
    case never
}

extension PackStoreError {
    /// When trying again makes sense.
    public var retryAdvice: RetryAdvice {
        switch self {
        case .invalidID, .fileNotFound, .container, .notConfigured, .unreadable: .never
        case .notStaged: .later
        case .fetchFailed(_, let failure), .manifestUnavailable(let failure): failure.retry
        case .deadlineExceeded, .cancelled: .now
        }
    }
}

extension PackStoreError: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .invalidID(let error):
            "not a pack's id: \(error)"
        case .notStaged(let id):
            "pack '\(id)' is not staged"
        case .fetchFailed(let id, let failure):
            // The command's own words name the pack.
            failure.reason.contains("pack '\(id)'")
                ? failure.reason : "pack '\(id)': \(failure.reason)"
        case .manifestUnavailable(let failure):
            failure.reason
        case .deadlineExceeded(let id, let duration):
            "pack '\(id)' was not there within \(duration)"
        case .fileNotFound(let path):
            "no pack that was looked in has a file at '\(path.forDisplay())'"
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
