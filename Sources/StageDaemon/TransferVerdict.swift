import FoundationEssentials
import StageControl
import StageSystem
import StageTransfer
import SystemPackage

/// What is to become of a task after an attempt.
enum TransferVerdict: Equatable, Sendable {
    /// Another attempt, once the hold is over.
    case again(Hold)
    /// The server wants to know who asks.
    case challenge
    /// The disk is full.
    case diskFull
    /// Nothing: somebody stopped it.
    case stopped
    /// It has failed for good.
    case fail(TransferFailure)

    /// Judges an error that ended an attempt.
    ///
    /// - Parameters:
    ///   - error: The error.
    ///   - wait: The wait that the engine had begun, which is no failure.
    ///   - answersChallenges: Whether the client answers challenges.
    ///   - clockIsWrong: Whether the clock of this machine is earlier than it can be.
    ///   - now: When that was.
    init(
        _ error: TransferError,
        wait: (reason: HoldReason, duration: Duration)?,
        answersChallenges: Bool,
        clockIsWrong: Bool,
        at now: Date
    ) {
        if let wait {
            self = .again(Hold(wait.reason, until: now + wait.duration.seconds))
            return
        }
        switch error {
        case .cancelled: self = .stopped
        case .outOfSpace: self = .diskFull
        case .refused(_, let status, _) where (status == 401 || status == 407) && answersChallenges:
            self = .challenge
        case .captivePortal:
            self = .again(Hold(.portal, until: now + Self.portalWait, problem: "\(error)"))
        case .untrusted(_, .notYetValid, _) where clockIsWrong,
            .untrusted(_, .expired, _) where clockIsWrong:
            self = .again(Hold(.clock, until: now + Self.clockWait, problem: "\(error)"))
        case .storage(let error) where error.errno == HeldBytes.quotaExceeded:
            self = .again(Hold(.quota, until: now + TransferState.quotaWait))
        case .storage(let error) where error.errno == .noSpace:
            self = .again(Hold(.disk, until: now + TransferState.diskWait))
        case .storage(let error) where Self.passing.contains(error.errno):
            self = .again(Hold(.backoff, until: now + Self.shortageWait, problem: "\(error)"))
        default: self = .fail(TransferFailure(error))
        }
    }

    /// What the machine is short of for a while.
    private static let passing: Set<Errno> = [
        .tooManyOpenFiles, .tooManyOpenFilesInSystem, .noMemory,
    ]
    /// How long a shortage is given to pass.
    private static let shortageWait = 30.0
    /// How long a portal is left alone, unless the network says that it is gone.
    private static let portalWait = 120.0
    /// How long a clock is given to be set.
    private static let clockWait = 600.0
}

extension TransferFailure {
    /// Creates the refusal that a client gets for an error.
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
    /// The end of a request that may have been sent, and of which no answer was waited for.
    static let lostAnswer = TransferFailure(
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
