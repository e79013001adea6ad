import Glibc
public import StageModel
import StageSystem
import SystemPackage

/// The history of an application's runs: decisions, failures and pending work.
///
/// It contains facts and codes, without texts for people except the messages of failures. The container stores
/// it beside the manifest, for `stagepack why` and for the next run. Its loss affects explanations and the
/// amount spent before the first launch, but no pack.
public struct StagingHistory: Hashable, Sendable {
    /// The path of the registration that the last run used; `nil` if no run had one.
    ///
    /// When the file is removed from its folder, the application counts as uninstalled, and its packs are removed.
    public var registration: String?
    /// `true` if the application is registered.
    public var isRegistered: Bool { registration != nil }
    /// The version of the application at the last event; `nil` if unknown.
    public var applicationVersion: String?
    /// The installation and the update that are incomplete, or have begun and not ended; empty if neither is.
    public var pending: Set<ContentRequest> = []
    /// The time when the first use of a pack by the application was noticed, in seconds since 1970; `nil`
    /// before.
    ///
    /// The restrictions of the registration do not apply afterwards.
    public var firstLoadedAt: Int64?
    /// The bytes transferred before the first launch.
    public var spent = Spending()
    /// The run that ended last.
    public var lastRun: Run?
    /// The end of the last run for an event that received the server's manifest and staged all required packs, in
    /// seconds since 1970.
    ///
    /// Runs for packs that were requested by name do not change it.
    public var lastSuccessAt: Int64?
    /// The last decision about each pack, from any run, in the order of the last plan.
    public var packs: [PackEntry] = []

    /// Creates an empty history.
    public init() {}

    /// Bytes transferred for packs, essential ones and others.
    public struct Spending: Hashable, Sendable {
        /// For essential packs.
        public var essential = ByteCount.zero
        /// For the other packs.
        public var other = ByteCount.zero

        /// Creates a value with zero bytes.
        public init() {}
    }

    /// One run of a command that stages packs.
    public struct Run: Hashable, Sendable, Encodable {
        /// The end of the run, in seconds since 1970.
        public var endedAt: Int64
        /// The event of the run; `nil` if packs were requested by name.
        public var request: ContentRequest?
        /// `true` if the run was restricted to essential packs.
        public var isEssentialOnly: Bool
        /// The failure to obtain the manifest, from the server or at all, or the selection of the extension;
        /// `nil` if there was none.
        public var problem: Problem?
        /// `true` if ``problem`` is set, or if a pack or file of the run failed.
        public var hasFailed = false

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
            hasFailed = problem != nil
        }
    }

    /// The last decision about a pack, and its outcome.
    public struct PackEntry: Hashable, Sendable {
        /// The pack.
        public var id: PackID
        /// The version in the manifest.
        public var version: Int
        /// The time of the decision, in seconds since 1970.
        public var decidedAt: Int64
        /// The outcome of the run for the pack.
        public var outcome: PackOutcome
        /// The rule that led to the decision.
        public var rule: Rule
        /// The reason for the decision or the outcome.
        public var reason: StagingReason
        /// The URL that the content came from.
        public var source: String?
        /// The number of consecutive runs that failed to stage the pack.
        public var failures = 0
        /// The failure of the last of those runs.
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

    /// A rule for decisions about a pack.
    @nonexhaustive
    public enum Rule: Hashable, Sendable, Codable {
        /// The policy with the given name, at an event.
        case policy(name: String, event: ContentRequest, isEssentialOnly: Bool)
        /// The pack was requested by name.
        case name
        /// The pack was found damaged.
        case repair
    }

    /// A failure, as facts and codes.
    public struct Problem: Hashable, Sendable, Codable {
        /// The kind of failure, by its name in the library `StagingService`.
        public var kind: String
        /// The description of the failure, as a fragment.
        public var message: String
        /// The name of the recommended action in the library `StagingService`; `nil` if there is none.
        public var advice: String?
        /// The delay that the server requested, in seconds; `nil` if it requested none.
        public var retryAfter: Int64?
        /// The time for a retry: `now`, `later` or `never`.
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

extension Set<ContentRequest> {
    /// The event that a run without an event completes first; `nil` if there is none.
    package var next: ContentRequest? { ContentRequest.allCases.first(where: contains) }
}

/// A history, and the bytes that it was decoded from.
///
/// Decoding a history of many packs takes long, so it is reused while the bytes are equal.
public struct HistoryRecord: Sendable {
    /// The history; `nil` if there is none, or it is damaged.
    public let history: StagingHistory?
    fileprivate let bytes: [UInt8]?
}

extension Container {
    /// Changes the history of an application atomically.
    ///
    /// Waits for concurrent changes.
    ///
    /// - Parameters:
    ///   - application: The application whose history is changed.
    ///   - record: A history that was read before, if any; it is decoded again only if the file has changed.
    ///   - seconds: The seconds after which a lock that another process holds is an error.
    ///   - change: Changes the history. Called once, while the lock is held.
    /// - Throws: ``ContainerError`` if the lock cannot be acquired, or the history not be read or written; the
    ///   history is unchanged then.
    public func updateHistory(
        of application: ApplicationID,
        after record: HistoryRecord? = nil,
        waitingSeconds seconds: Int = 5,
        _ change: (inout StagingHistory) -> Void
    ) throws(ContainerError) {
        let lock: FileLock
        do throws(FileError) {
            lock = try waitForLock(Self.historyLock, mode: .exclusive, seconds: seconds)
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
                // The history contains the work that a hook has left to the periodic run.
                durably: true
            )
        }
        _ = consume lock
    }

    /// Removes the manifest, the signed metadata and the history of an application.
    ///
    /// The history goes last: after a crash in between, ``ContainerReader/applicationsWithHistory()`` still has the
    /// application.
    public func forget(_ application: ApplicationID) throws(ContainerError) {
        try removeTrust(of: application)
        try ContainerError.wrapping { () throws(FileError) in
            try manifests.remove(application.recordName)
            try manifests.synchronize()
            try histories.remove(application.recordName)
        }
    }

    /// Held while a history is changed; the ID of a pack never begins with a dot.
    private static let historyLock: FilePath.Component = ".history"
}

extension ContainerReader {
    /// Returns the history of an application; `nil` if there is none or it is damaged.
    public func history(of application: ApplicationID) throws(ContainerError) -> StagingHistory? {
        try historyRecord(of: application).history
    }

    /// Returns the history of an application with the bytes that it was read from.
    ///
    /// - Parameters:
    ///   - application: The application.
    ///   - record: A history that was read before, if any; it is returned if the file has not changed.
    /// - Returns: The record; its history is `nil` if the file is missing or damaged.
    /// - Throws: ``ContainerError/file(_:)`` if the file cannot be read.
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

    /// Returns the applications that have a history, in order.
    public func applicationsWithHistory() throws(ContainerError) -> [ApplicationID] {
        try applications(recordedIn: ContainerLayout.history)
    }
}
