public import StageModel

/// Progress of every pack of a plan, updated by events: a pure value for display.
public struct StagingProgress: Equatable, Sendable {
    /// The packs to stage, in the order of the plan.
    public private(set) var packs: [PackProgress]
    private var positions: [PackID: Int]

    /// Creates the progress of a plan that has not started.
    public init(_ plan: Plan) {
        var archives: Set<Digest> = []
        packs = plan.packsToStage.map { pack in
            // An archive that several packs share is downloaded once.
            let isShared = pack.archive.map { !archives.insert($0.digest).inserted } ?? false
            return PackProgress(pack, sharesArchive: isShared && pack.index == nil)
        }
        positions = Dictionary(uniqueKeysWithValues: packs.enumerated().map { ($1.id, $0) })
    }

    /// Updates the progress with an event; ignores packs that are not in the plan.
    public mutating func apply(_ event: StagingEvent, to id: PackID) {
        guard let position = positions[id] else { return }
        packs[position].apply(event)
    }

    /// Returns the progress of a pack; `nil` if the plan does not stage it.
    public subscript(id: PackID) -> PackProgress? { positions[id].map { packs[$0] } }

    /// The bytes to transfer for all packs.
    public var downloadSize: ByteCount { packs.reduce(.zero) { $0 + $1.downloadSize } }
    /// The bytes of all packs that have been received or reused.
    public var received: ByteCount { packs.reduce(.zero) { $0 + $1.received } }
    /// The bytes that this run received and kept.
    public var transferred: ByteCount { packs.reduce(.zero) { $0 + $1.received - $1.reused } }
    /// The total size of the files, in bytes.
    public var installedSize: ByteCount { packs.reduce(.zero) { $0 + $1.installedSize } }
    /// The bytes of files that are written.
    public var unpacked: ByteCount { packs.reduce(.zero) { $0 + $1.unpacked } }

    /// The fraction of received and unpacked bytes, from 0 to 1.
    public var fractionCompleted: Double {
        let total = (downloadSize + installedSize).rawValue
        return total == 0 ? 1 : Double((received + unpacked).rawValue) / Double(total)
    }
}

/// Progress of one pack.
public struct PackProgress: Equatable, Sendable {
    /// Phases of staging a pack.
    @nonexhaustive
    public enum Phase: Equatable, Sendable {
        /// The pack is queued.
        case queued
        /// The pack waits for another process or task that works on it.
        case waitingForOther
        /// The pack waits for another pack that downloads a shared archive or patch.
        case waitingForSharedDownload
        /// The pack waits for another pack of the run that downloads their shared archive.
        case waitingForPack(PackID)
        /// The transfer is paused for the given reason.
        case waiting(reason: String, seconds: Double)
        /// The transfer receives bytes.
        case receiving
        /// Files are being written.
        case unpacking
        /// The content is being synced to disk and published.
        case publishing
        /// Staging the pack has ended.
        case ended
    }

    /// The pack.
    public let id: PackID
    /// The version to stage.
    public let version: Int
    /// The bytes to transfer if nothing is on this machine: the archive, or the index with bundles, archive or patch.
    ///
    /// The size in the manifest until the way is chosen that transfers the fewest bytes.
    public private(set) var downloadSize: ByteCount
    /// The total size of the files, in bytes.
    public let installedSize: ByteCount
    /// The current phase.
    public private(set) var phase = Phase.queued
    /// The URL of the latest request; `nil` while no transfer is in progress.
    public private(set) var source: String?
    /// The bytes of the pack that have been received or reused.
    public private(set) var received = ByteCount.zero
    /// The part of ``received`` that was on this machine before.
    public private(set) var reused = ByteCount.zero
    /// The bytes of files that are written.
    public private(set) var unpacked = ByteCount.zero
    /// The latest choice between the ways to transfer an indexed pack; `nil` if there was none.
    public private(set) var transferChoice: TransferChoice?
    /// The outcome; `nil` until staging has ended.
    public private(set) var outcome: StagingOutcome?
    /// The reason why the latest request failed; `nil` if bytes have arrived since then, or none has failed.
    public private(set) var lastFailure: String?
    /// `true` if staging ended while the pack waited for another process or task that works on it.
    package private(set) var waitedForOther = false
    /// The size of the index.
    private let sizeOfIndex: ByteCount
    /// The total size of the index and its bundles.
    private let sizeOfObjects: ByteCount
    /// The total size of the index and the archive.
    private let sizeWithArchive: ByteCount
    /// `true` if the archive counts for another pack, which downloads it.
    private var sharesArchive: Bool

    init(_ pack: Pack, sharesArchive: Bool) {
        id = pack.id
        version = pack.version
        self.sharesArchive = sharesArchive
        let size = pack.index?.size ?? .zero
        sizeOfIndex = size
        sizeOfObjects = size + (pack.index?.bundleSize ?? .zero)
        sizeWithArchive = pack.archiveDownloadSize ?? size
        downloadSize = sharesArchive ? .zero : pack.downloadSize
        installedSize = pack.installedSize
    }

    mutating func apply(_ event: StagingEvent) {
        switch event {
        case .waitingForOther:
            phase = .waitingForOther
        case .waitingForSharedDownload:
            // Keeps the phase that names the other pack.
            if case .waitingForPack = phase { break }
            phase = .waitingForSharedDownload
        case .sharesArchive(let other):
            phase = .waitingForPack(other)
        case .waiting(let reason, let seconds):
            phase = .waiting(reason: reason, seconds: seconds)
        case .chose(let choice):
            transferChoice = choice
            downloadSize =
                switch choice.way {
                case .objects: sizeOfObjects
                case .archive: sizeWithArchive
                case .patch:
                    (choice.precedesIndex ? .zero : sizeOfIndex)
                        + (choice.patchSize ?? choice.byteCount)
                }
            received = .zero
            reused = .zero
        case .connecting(let url):
            phase = .receiving
            source = url
        case .mirrorFailed(_, let reason):
            phase = .receiving
            lastFailure = reason
        case .received(let count, let reused):
            phase = .receiving
            if count > received { lastFailure = nil }
            take(received: count, reused: reused)
        case .restarted:
            received = .zero
            reused = .zero
        case .verified:
            phase = .unpacking
            received = downloadSize
            source = nil
        case .unpacked(let count):
            phase = .unpacking
            unpacked = count
        case .publishing:
            phase = .publishing
            unpacked = installedSize
        case .ended(let outcome):
            end(outcome)
        }
    }

    private mutating func take(received count: ByteCount, reused: ByteCount) {
        if sharesArchive {
            // The other pack has downloaded the archive, unless it failed: then this pack downloads it.
            guard count > reused else { return }
            sharesArchive = false
            downloadSize = sizeWithArchive
        }
        received = count
        self.reused = reused
    }

    private mutating func end(_ outcome: StagingOutcome) {
        waitedForOther = phase == .waitingForOther
        phase = .ended
        self.outcome = outcome
        if case .alreadyStaged = outcome {
            received = downloadSize
            reused = downloadSize
            unpacked = installedSize
        }
    }
}
