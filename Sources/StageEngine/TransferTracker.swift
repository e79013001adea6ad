import StageModel
import StageTransfer
import Synchronization

/// Translates events of the transfer engine into events of staging, and drives the digest.
final class TransferTracker: Sendable {
    private let follower: DigestFollower
    private let report: @Sendable (StagingEvent) -> Void
    private let reused = Mutex(ByteCount.zero)

    init(
        _ follower: DigestFollower,
        report: @escaping @Sendable (StagingEvent) -> Void
    ) {
        self.follower = follower
        self.report = report
    }

    func take(_ event: TransferEvent) {
        switch event {
        case .accepted(_, let path, let start):
            reused.withLock { $0 = start }
            follower.follow(path)
            follower.follow(to: start)
            report(.received(start, reused: start))
        case .received(let count):
            follower.follow(to: count)
            report(.received(count, reused: reused.withLock { $0 }))
        case .waiting, .connecting, .continuing, .restarted, .mirrorFailed, .responded,
            .checkpointed, .sent:
            if let event = StagingEvent(event) { report(event) }
        }
    }
}

extension StagingEvent {
    /// Creates the event for a transfer event that translates directly; `nil` for those about bytes.
    init?(_ event: TransferEvent) {
        switch event {
        case .waiting(let reason, let duration):
            let seconds = duration.map { $0 / .seconds(1) } ?? 0
            self = .waiting(reason: Self.text(reason), seconds: seconds)
        case .connecting(let url):
            self = .connecting(url: url)
        case .restarted(let reason):
            self = .restarted(reason: Self.text(reason))
        case .mirrorFailed(let url, let error):
            self = .mirrorFailed(url: url, reason: error.description)
        case .continuing, .responded, .accepted, .received, .checkpointed, .sent:
            return nil
        }
    }

    private static func text(_ reason: TransferEvent.WaitReason) -> String {
        switch reason {
        case .connection: "all connections are in use"
        case .backoff: "every mirror failed; trying again"
        case .server: "the server asked for a delay"
        }
    }

    private static func text(_ reason: TransferEvent.RestartReason) -> String {
        switch reason {
        case .contentChanged: "the server has another version"
        case .unreliableRanges(let detail):
            "the server answers requests for ranges wrongly (\(detail))"
        case .wrongDigest: "the received content has another digest than the manifest names"
        }
    }
}
