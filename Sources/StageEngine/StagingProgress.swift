public import StageModel

/// Where each pack of a plan stands, kept up to date by events: a pure value, for people and programs
/// that watch.
public struct StagingProgress: Equatable, Sendable {
    /// The packs that are being staged, in the order of the plan.
    public private(set) var packs: [PackProgress]
    private var places: [PackID: Int]

    /// Creates the progress of a plan of which nothing has happened.
    public init(_ plan: Plan) {
        var archives: Set<Digest> = []
        packs = plan.packsToStage.map { pack in
            // An archive that several packs have is downloaded once.
            let isShared = pack.archive.map { !archives.insert($0.digest).inserted } ?? false
            return PackProgress(pack, sharesArchive: isShared && pack.index == nil)
        }
        places = Dictionary(uniqueKeysWithValues: packs.enumerated().map { ($1.id, $0) })
    }

    /// Takes note of an event; events of packs that are not in the plan are ignored.
    public mutating func apply(_ event: StagingEvent, to id: PackID) {
        guard let place = places[id] else { return }
        packs[place].apply(event)
    }

    /// Returns where a pack stands; `nil` if it is not in the plan.
    public subscript(id: PackID) -> PackProgress? { places[id].map { packs[$0] } }

    /// The bytes of all archives.
    public var downloadSize: ByteCount { packs.reduce(.zero) { $0 + $1.downloadSize } }
    /// The bytes of all archives that are here.
    public var received: ByteCount { packs.reduce(.zero) { $0 + $1.received } }
    /// The bytes that came over the wire in this run, as far as they are in part files.
    public var transferred: ByteCount { packs.reduce(.zero) { $0 + $1.received - $1.reused } }
    /// The bytes of all files.
    public var installedSize: ByteCount { packs.reduce(.zero) { $0 + $1.installedSize } }
    /// The bytes of all files that are written.
    public var unpacked: ByteCount { packs.reduce(.zero) { $0 + $1.unpacked } }
    /// Whether every pack has ended.
    public var hasEnded: Bool { packs.allSatisfy { $0.outcome != nil } }

    /// Received and unpacked bytes together, from 0 to 1.
    public var fractionCompleted: Double {
        let total = (downloadSize + installedSize).rawValue
        return total == 0 ? 1 : Double((received + unpacked).rawValue) / Double(total)
    }
}

/// Where one pack stands.
public struct PackProgress: Equatable, Sendable {
    /// What a pack is doing.
    public enum Phase: Equatable, Sendable {
        /// Its turn has not come.
        case queued
        /// Another process or task works on it.
        case waitingForOther
        /// Another pack fetches the archive or the bundle that both use.
        case waitingForSharedDownload
        /// Its archive is that of another pack of the run, which is downloading it.
        case waitingForPack(PackID)
        /// The transfer waits, for the reason given.
        case waiting(reason: String, seconds: Double)
        /// Bytes are coming in.
        case receiving
        /// Files are being written.
        case unpacking
        /// The disk is being waited for.
        case publishing
        /// It has ended.
        case ended
    }

    /// The pack.
    public let id: PackID
    /// The version that is staged.
    public let version: Int
    /// The bytes to transfer where nothing is here: of the archive, or of the index and its bundles.
    public private(set) var downloadSize: ByteCount
    /// The size of the files.
    public let installedSize: ByteCount
    /// What the pack is doing.
    public private(set) var phase = Phase.queued
    /// The URL that was asked last; `nil` while no bytes are waited for.
    public private(set) var source: String?
    /// The bytes of the archive that are here.
    public private(set) var received = ByteCount.zero
    /// Those of them that an earlier run had left.
    public private(set) var reused = ByteCount.zero
    /// The bytes of files that are written.
    public private(set) var unpacked = ByteCount.zero
    /// How the pack ended, or `nil` while it has not.
    public private(set) var outcome: StagingOutcome?
    /// The size of the index and its bundles.
    private let sizeOfObjects: ByteCount
    /// The size of the index and the archive.
    private let sizeWithArchive: ByteCount
    /// Whether the archive counts as that of another pack.
    private var sharesArchive: Bool

    init(_ pack: Pack, sharesArchive: Bool) {
        id = pack.id
        version = pack.version
        self.sharesArchive = sharesArchive
        let size = pack.index?.size ?? .zero
        sizeOfObjects = size + (pack.index?.bundleSize ?? .zero)
        sizeWithArchive = size + (pack.archive?.size ?? .zero)
        downloadSize = sharesArchive ? .zero : pack.downloadSize
        installedSize = pack.installedSize
    }

    mutating func apply(_ event: StagingEvent) {
        switch event {
        case .waitingForOther:
            phase = .waitingForOther
        case .waitingForSharedDownload:
            // The pack whose archive it is says more.
            if case .waitingForPack = phase { break }
            phase = .waitingForSharedDownload
        case .sharesArchive(let other):
            phase = .waitingForPack(other)
        case .waiting(let reason, let seconds):
            phase = .waiting(reason: reason, seconds: seconds)
        case .chose(let choice):
            downloadSize = choice.way == .archive ? sizeWithArchive : sizeOfObjects
            received = .zero
            reused = .zero
        case .connecting(let url):
            phase = .receiving
            source = url
        case .mirrorFailed:
            phase = .receiving
        case .received(let count, let reused):
            phase = .receiving
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
            // It is here: the other pack has downloaded it. If that one failed, this one does it.
            guard count > reused else { return }
            sharesArchive = false
            downloadSize = sizeWithArchive
        }
        received = count
        self.reused = reused
    }

    private mutating func end(_ outcome: StagingOutcome) {
        phase = .ended
        self.outcome = outcome
        if case .alreadyStaged = outcome {
            received = downloadSize
            reused = downloadSize
            unpacked = installedSize
        }
    }
}
