import FoundationEssentials
import StageControl
import StageSystem
import StageTransfer
import SystemPackage

/// Decision about a task after an attempt that did not complete.
enum TransferVerdict: Equatable, Sendable {
    /// Retry after the delay.
    case retry(PendingReason)
    /// The server sent a challenge: ask the client for credentials.
    case challenge
    /// The disk is full, or cannot be written because of the problem.
    case disk(problem: String?)
    /// The attempt was stopped.
    case stopped
    /// The task has failed for good.
    case fail(TransferFailure)

    /// Decides about the task after an error ended its attempt.
    ///
    /// - Parameters:
    ///   - error: The error.
    ///   - wait: The wait that the engine started, which is not a failure.
    ///   - answersChallenges: Whether the client answers challenges.
    ///   - clockIsWrong: Whether this machine's clock is certainly slow.
    ///   - failures: The number of attempts before this one that have failed without progress.
    ///   - now: The current time.
    init(
        _ error: TransferError,
        wait: (reason: PendingReason.Kind, duration: Duration)?,
        answersChallenges: Bool,
        clockIsWrong: Bool,
        failures: Int,
        at now: Date
    ) {
        if let wait {
            self = .retry(PendingReason(wait.reason, until: now + wait.duration.seconds))
            return
        }
        switch error {
        case .cancelled: self = .stopped
        case .outOfSpace: self = .disk(problem: nil)
        // Concerns all transfers, and ends when a person has repaired the file system.
        case .storage(let error) where error.errno == .readOnlyFileSystem:
            self = .disk(problem: "\(error)")
        case .refused(_, let status, _) where (status == 401 || status == 407) && answersChallenges:
            self = .challenge
        case .captivePortal:
            self = .retry(PendingReason(.portal, until: now + Self.portalWait, problem: "\(error)"))
        case .untrusted(_, .notYetValid, _) where clockIsWrong,
            .untrusted(_, .expired, _) where clockIsWrong:
            self = .retry(PendingReason(.clock, until: now + Self.clockWait, problem: "\(error)"))
        case .untrusted(_, .unloadableAuthorities, _):
            // The file of the configuration may come back.
            self = .retry(
                PendingReason(.backoff, until: now + Self.authoritiesWait, problem: "\(error)")
            )
        case .storage(let error) where error.errno == DiskQuota.quotaExceeded:
            self = .retry(PendingReason(.quota, until: now + TransferState.quotaWait))
        case .storage(let error) where error.errno == .noSpace:
            self = .retry(PendingReason(.disk, until: now + TransferState.diskWait))
        case .storage(let error)
        where Self.temporaryErrors.contains(error.errno)
            || error.isFailedWrite && failures < Self.failedWrites:
            self = .retry(
                PendingReason(.backoff, until: now + Self.shortageWait, problem: "\(error)")
            )
        default: self = .fail(TransferFailure(error))
        }
    }

    /// Errors of temporary resource shortages.
    private static let temporaryErrors: Set<Errno> = [
        .tooManyOpenFiles, .tooManyOpenFilesInSystem, .noMemory,
    ]
    /// Number of attempts without progress after which a write that the disk has refused fails the task.
    private static let failedWrites = 5
    /// Delay in seconds after a resource shortage, or after a failed write.
    private static let shortageWait = 30.0
    /// Delay in seconds after a captive portal was detected, unless the network conditions change.
    private static let portalWait = 120.0
    /// Delay in seconds until the file of certificate authorities may be readable.
    private static let authoritiesWait = 60.0
    /// Delay in seconds until the clock may have been set.
    private static let clockWait = 600.0
}

extension TransferFailure {
    /// Converts an error into the failure that the client receives.
    init(_ error: TransferError) {
        let reason = "\(error)"
        switch error {
        case .unreachable, .captivePortal: self.init(.unreachable, reason: reason)
        case .refused(_, let status, _): self.init(.refused, reason: reason, status: status)
        case .wrongSize, .wrongDigest: self.init(.wrongContent, reason: reason)
        case .untrusted: self.init(.untrusted, reason: reason)
        case .outOfSpace, .storage: self.init(.storage, reason: reason)
        case .unacceptable, .cancelled: self.init(.unacceptable, reason: reason)
        }
    }
}

extension TransferFailure {
    /// Failure of a request that may have been sent completely without receiving a response.
    static let lostResponse = TransferFailure(
        .unreachable,
        reason:
            "all of the request may have been sent, and the transfer ended before its answer; the server may "
            + "have acted on it, so it is not sent again"
    )
}

extension Duration {
    /// The duration in seconds.
    var seconds: Double { self / .seconds(1) }
}

extension FileError {
    /// Indicates whether a sync has found that bytes of the file were not written.
    fileprivate var isFailedWrite: Bool { errno == .ioError && operation == "synchronize" }
}
