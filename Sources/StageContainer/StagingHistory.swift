import Glibc
public import StageModel
import StageSystem
import SystemPackage

/// What is remembered of an application's runs: what was decided, what failed, what is still to come.
///
/// It has facts and codes; words are made where they are printed. It is kept in the container beside the
/// manifest, for `stagepack why` and for the next run. Losing it loses explanations and the count of what was
/// spent before the first launch, and no pack.
public struct StagingHistory: Hashable, Sendable {
    /// Whether the application is one that a registration named.
    public var isRegistered = false
    /// The version of the application at the last event; `nil` where nobody told it.
    public var applicationVersion: String?
    /// An installation or update of which packs are still missing.
    public var pending: ContentRequest?
    /// When it was noticed that the application had loaded a pack, in seconds since 1970.
    ///
    /// From then on nothing is restricted any more.
    public var firstLoadedAt: Int64?
    /// What was transferred before the first launch.
    public var spent = Spending()
    /// The run that ended last.
    public var lastRun: Run?
    /// When the last run ended that had the server's manifest and staged all that it had to, in seconds since 1970.
    public var lastSuccessAt: Int64?
    /// The last decision about each pack, by whichever run made it, in the order of the last plan.
    public var packs: [PackEntry] = []

    /// Creates the history of an application of which nothing is known.
    public init() {}

    /// Bytes of archives, by whether their packs were essential.
    public struct Spending: Hashable, Sendable {
        /// Of essential packs.
        public var essential = ByteCount.zero
        /// Of the others.
        public var other = ByteCount.zero

        /// Creates the value of nothing spent.
        public init() {}
    }

    /// One run of a command that stages packs.
    public struct Run: Hashable, Sendable, Encodable {
        /// When it ended, in seconds since 1970.
        public var endedAt: Int64
        /// The event it was for; `nil` where packs were asked for by name.
        public var request: ContentRequest?
        /// Whether it was for essential packs alone.
        public var isEssentialOnly: Bool
        /// What kept it from having the manifest, or the server's, or the extension's answer.
        public var problem: Problem?

        /// Creates the record of a run.
        public init(
            endedAt: Int64,
            request: ContentRequest?,
            isEssentialOnly: Bool,
            problem: Problem? = nil
        ) {
            self.endedAt = endedAt
            self.request = request
            self.isEssentialOnly = isEssentialOnly
            self.problem = problem
        }
    }

    /// What was decided and done about one pack.
    public struct PackEntry: Hashable, Sendable {
        /// The pack.
        public var id: PackID
        /// The version that the manifest offered.
        public var version: Int
        /// When it was decided, in seconds since 1970.
        public var decidedAt: Int64
        /// The end of what was done.
        public var outcome: PackOutcome
        /// The rule that decided.
        public var rule: Rule
        /// The reason for the decision or the outcome.
        public var reason: StagingReason
        /// The URL that the archive came from.
        public var source: String?
        /// How many runs in a row could not stage it.
        public var failures = 0
        /// Why the last of them could not.
        public var problem: Problem?

        /// Creates the record of a decision.
        public init(
            id: PackID,
            version: Int,
            decidedAt: Int64,
            outcome: PackOutcome,
            rule: Rule,
            reason: StagingReason
        ) {
            self.id = id
            self.version = version
            self.decidedAt = decidedAt
            self.outcome = outcome
            self.rule = rule
            self.reason = reason
        }
    }

    /// A rule by which it is decided about a pack.
    @nonexhaustive
    public enum Rule: Hashable, Sendable, Codable {
        /// The policy of this name, at an event.
        case policy(name: String, event: ContentRequest, isEssentialOnly: Bool)
        /// It was asked for by name.
        case name
        /// It was found damaged.
        case repair
    }

    /// A failure, as facts and codes.
    public struct Problem: Hashable, Sendable, Codable {
        /// The kind of failure, by its name in the library `StagingService`.
        public var kind: String
        /// The description of the failure, as a fragment.
        public var message: String
        /// The one thing to do, by its name in the library `StagingService`, if there is one.
        public var advice: String?
        /// The seconds after which the server wants to be asked again, if it said so.
        public var retryAfter: Int64?
        /// When trying again makes sense: `now`, `later` or `never`.
        public var retry: String

        /// Creates a problem from its parts.
        public init(
            kind: String,
            message: String,
            advice: String?,
            retryAfter: Int64?,
            retry: String
        ) {
            self.kind = kind
            self.message = message
            self.advice = advice
            self.retryAfter = retryAfter
            self.retry = retry
        }
    }
}

/// A history with the bytes that it was read from.
///
/// A history of many packs takes long to decode; it is not decoded again while the bytes are the same.
public struct HistoryRecord: Sendable {
    /// The history; `nil` if there is none, or it is damaged.
    public let history: StagingHistory?
    fileprivate let bytes: [UInt8]?
}

extension Container {
    /// Changes what is remembered of an application, in one step.
    ///
    /// Concurrent changes wait for each other, five seconds at most: nothing may be held up by it.
    ///
    /// - Parameters:
    ///   - application: The application whose history is changed.
    ///   - record: The history as it was read before, if it was; it is read again, and decoded again only if
    ///     it has changed.
    ///   - change: Changes the history. Called once, while the lock is held.
    /// - Throws: If the lock, the history or the disk cannot be had; the history is then as it was.
    public func updateHistory(
        of application: ApplicationID,
        after record: HistoryRecord? = nil,
        _ change: (inout StagingHistory) -> Void
    ) throws(ContainerError) {
        let lock: FileLock
        do throws(FileError) {
            lock = try waitForLock(Self.historyLock, .exclusive)
        } catch {
            throw .file(error)
        }
        let found = try reader.historyRecord(of: application, after: record)
        var history = found.history ?? StagingHistory()
        let before = history
        change(&history)
        if history != before {
            try JSONRecord.write(
                history.json(),
                to: application.recordName,
                in: histories,
                // It names what a hook has left to the periodic run.
                durably: true
            )
        }
        _ = consume lock
    }

    /// Forgets an application: its manifest, the metadata it was verified with, and what is remembered of it.
    public func forget(_ application: ApplicationID) throws(ContainerError) {
        try ContainerError.wrapping { () throws(FileError) in
            try histories.remove(application.recordName)
            try manifests.remove(application.recordName)
        }
        try removeTrust(of: application)
    }

    /// Held while a history is changed; a pack's id never begins with a dot.
    private static let historyLock: FilePath.Component = ".history"
}

extension ContainerReader {
    /// Returns what is remembered of an application, or `nil` if nothing is.
    ///
    /// Explanations are not worth a failure: a damaged record counts as none.
    public func history(of application: ApplicationID) throws(ContainerError) -> StagingHistory? {
        try historyRecord(of: application).history
    }

    /// Returns the history of an application with the bytes that it was read from.
    ///
    /// - Parameters:
    ///   - application: The application.
    ///   - record: The history as it was read before, if it was: returned again where nothing has changed.
    /// - Returns: The record. That of a missing or damaged history has none.
    /// - Throws: If the file cannot be read.
    public func historyRecord(
        of application: ApplicationID,
        after record: HistoryRecord? = nil
    ) throws(ContainerError) -> HistoryRecord {
        let name = FilePath(ContainerLayout.history).appending(application.recordName)
        let bytes: [UInt8]?
        do throws(ContainerError) {
            bytes = try JSONRecord.bytes(of: name, in: root)
        } catch {
            guard case .damagedRecord = error else { throw error }
            return HistoryRecord(history: nil, bytes: nil)
        }
        guard let bytes else { return HistoryRecord(history: nil, bytes: nil) }
        if let record, record.bytes == bytes { return record }
        let history: StagingHistory?
        do throws(ManifestError) {
            history = try StagingHistory(reading: try JSONNode(json: bytes))
        } catch {
            history = nil
        }
        return HistoryRecord(history: history, bytes: bytes)
    }

    /// Returns the applications that something is remembered of, in order.
    public func applicationsWithHistory() throws(ContainerError) -> [ApplicationID] {
        try applications(recordedIn: ContainerLayout.history)
    }

    /// Whether somebody has read from the generations of a pack since they were staged.
    ///
    /// A lease file is published with the time of its last access at zero, and a reader reads a byte
    /// of it. On a file system that is mounted `noatime` nothing is ever noticed.
    public func hasBeenLoaded(_ id: PackID) throws(ContainerError) -> Bool {
        try ContainerError.wrapping { () throws(FileError) in
            try root.contains(
                file: ContainerLayout.lease,
                inDirectoriesOf: "\(ContainerLayout.generations.string)/\(id)"
            ) { $0.accessed > 0 }
        }
    }
}
