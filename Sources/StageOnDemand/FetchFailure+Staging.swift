import StageArchive
import StageContainer
import StageEngine
import StagePack
import StageSystem
import StageTransfer

extension FetchFailure {
    /// Creates the failure that an application is told of.
    init(_ error: StageError) {
        self.init(Kind(error), reason: error.description, retry: error.retryAdvice)
    }
}

extension FetchFailure.Kind {
    /// The same kinds as the exit statuses of the command stand for.
    fileprivate init(_ error: StageError) {
        self =
            switch error {
            case _ where error.isOutOfSpace: .outOfSpace
            case .manifestUnavailable(.captivePortal): .loginRequired
            case .manifestUnavailable(.outOfSpace): .outOfSpace
            case .manifestUnavailable(.cancelled), .cancelled: .interrupted
            case .manifestUnavailable: .manifestUnavailable
            case .manifestInvalid, .manifestRefused, .noSuchFile(_, .isForOtherVersion):
                .manifestInvalid
            case .unknownPack: .unknownPack
            case .transfer(let error): Self(error)
            case .content(.cancelled): .interrupted
            case .content(.fileSystem(let error)), .container(.file(let error)): Self(error)
            case .content(.notConfined): .containerUnusable
            case .content, .index, .incompleteContent: .contentInvalid
            case .container(.pinned): .pinned
            case .container(.missing), .container(.unknownFormat), .container(.damagedRecord):
                .containerUnusable
            default: .other
            }
    }

    private init(_ error: TransferError) {
        self =
            switch error {
            case .unreachable, .untrusted: .unreachable
            case .refused, .unacceptable: .refused
            case .captivePortal: .loginRequired
            case .wrongSize, .wrongDigest: .contentInvalid
            case .outOfSpace: .outOfSpace
            case .storage(let error): Self(error)
            case .cancelled: .interrupted
            }
    }

    private init(_ error: FileError) {
        // Of what the system refuses for a while, the reason tells.
        self = error.isRefusedByLimit ? .other : .containerUnusable
    }
}

extension StageError {
    /// When trying again makes sense.
    fileprivate var retryAdvice: RetryAdvice {
        switch self {
        case .manifestUnavailable(let error), .transfer(let error):
            switch error.retryAdvice {
            case .soon: .now
            case .later: .later
            case .never: .never
            }
        case _ where isOutOfSpace: .later
        case .cancelled: .now
        default: .never
        }
    }
}
