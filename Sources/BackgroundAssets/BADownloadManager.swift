import Foundation
import StageControl
import StageExtension
import StageModel
import StageSystem
import Synchronization

/// The downloads of an application.
///
/// In an application the daemon (`stagepackd`) runs them, and they continue when the process ends: every
/// process of the application sees them. Synchronous methods block the caller's thread until the daemon
/// responds. In a downloader extension the manager schedules downloads after a failure, and lists those that
/// it scheduled.
///
/// Adds ``applicationGroupIdentifier`` to Apple's class, in place of the application's property list. The
/// download restrictions of an application apply only until its first launch, and therefore never to
/// downloads that it schedules itself.
public final class BADownloadManager: Sendable {
    /// The manager of the process.
    public static let shared = BADownloadManager(
        environment: ProcessEnvironment.current
    ) {
        ExtensionSession.request
    }

    private struct State {
        weak var delegate: (any BADownloadManagerDelegate)?
        var group: String?
        var connectors:
            [ApplicationGroupID: (session: DownloadSession, connector: DelegateConnector)] = [:]
    }

    private let environment: [String: String]
    /// The request that the process received as an extension, if it is one.
    let request: @Sendable () -> ExtensionRequest?
    private let state = Mutex(State())

    /// Creates a manager for a process with this environment.
    init(
        environment: [String: String],
        request: @escaping @Sendable () -> ExtensionRequest?
    ) {
        self.environment = environment
        self.request = request
    }

    /// The application group, `BAAppGroupID` in Apple's property list; set it before the first call that
    /// cannot take it from a download.
    ///
    /// Not a member of Apple's class. An invalid identifier is reported by the calls that need it.
    public var applicationGroupIdentifier: String? {
        get { state.withLock { $0.group } }
        set {
            state.withLock { $0.group = newValue }
            // An invalid group is reported by the calls that need it.
            if let newValue { _ = try? session(newValue) }
        }
    }

    /// The delegate, which receives the events of downloads, including earlier ones; a weak reference.
    ///
    /// While no process has a delegate, the daemon keeps events and files, and starts no extension for them.
    /// An extension has no delegate. If the process has reached its limit of threads, the manager's next call
    /// reports this and retries.
    public var delegate: (any BADownloadManagerDelegate)? {
        get { state.withLock { $0.delegate } }
        set {
            let connectors = state.withLock { state in
                state.delegate = newValue
                return state.connectors.values.map(\.connector)
            }
            for connector in connectors { connector.delegateDidChange() }
        }
    }

    /// The downloads in progress, and those whose end no delegate has received.
    ///
    /// In an extension, the downloads that it has scheduled.
    public var currentDownloads: [BADownload] {
        get async throws {
            try await withBlockingThread { try self.fetchCurrentDownloads() }
        }
    }

    /// Returns the value of ``currentDownloads``.
    ///
    /// - Throws: ``BAError`` if no group is known, or the daemon does not respond.
    public func fetchCurrentDownloads() throws -> [BADownload] {
        guard request() == nil else { return ExtensionSession.scheduled }
        return try sessions().flatMap { try $0.downloads() }
    }

    /// Calls `completionHandler` once with the value of ``currentDownloads``, on a thread of the manager, or with an error on
    /// the caller's if the process has reached its limit of threads.
    public func fetchCurrentDownloads(
        completionHandler: @escaping @Sendable ([BADownload], (any Error)?) -> Void
    ) {
        do throws(FileError) {
            try SystemThread(name: "stage-downloads") {
                do {
                    completionHandler(try self.fetchCurrentDownloads(), nil)
                } catch {
                    completionHandler([], error)
                }
            }
            .detach()
        } catch {
            completionHandler([], error)
        }
    }

    /// Schedules a download, which starts at a time that the system chooses.
    ///
    /// Two processes that schedule the same identifier at the same moment may both succeed: use
    /// `withExclusiveControl(_:)` to prevent that.
    ///
    /// A download that has ended, as the manager returned it, can be scheduled again, with its header fields. A
    /// credential that answered a challenge is not among them.
    ///
    /// - Throws: ``BAError`` if the download is invalid or already scheduled, the daemon hides its header fields
    ///   from this process, as from a confined one, or the daemon does not respond; in an extension, unless it
    ///   handles a failure.
    public func scheduleDownload(_ download: BADownload) throws {
        guard request() == nil else { return try ExtensionSession.schedule(download) }
        let (session, file) = try accepted(download)
        try session.schedule(file, note: DownloadNote(download))
    }

    /// Schedules a download like ``scheduleDownload(_:)``.
    public func schedule(_ download: BADownload) throws { try scheduleDownload(download) }

    /// Starts a download now, on any network and power source: the scheduled one with this identifier, or
    /// else a new one.
    ///
    /// Fails instead of waiting: for another attempt, a network, the server or disk space. The daemon decides that, also while no
    /// process of the application runs. A new download is created by one request, so it is in the foreground also if this process
    /// is killed meanwhile.
    ///
    /// - Throws: ``BAError`` if the download is invalid, the daemon refuses it, or the daemon does not respond, in which case the
    ///   download may exist, and the next call continues it; always in an extension.
    public func startForegroundDownload(_ download: BADownload) throws {
        guard request() == nil else {
            throw BAError(
                .callFromExtensionNotAllowed,
                message: "an extension cannot start foreground downloads"
            )
        }
        let (session, file) = try accepted(download)
        try session.start(file, note: DownloadNote(download))
    }

    /// Cancels a download; the delegate of this process receives no call at its end.
    ///
    /// Events that have arrived before, such as received bytes, may still be delivered after this returns.
    ///
    /// - Throws: ``BAError`` if it was not scheduled or has ended, or the daemon does not respond.
    public func cancel(_ download: BADownload) throws {
        guard request() == nil else { return try ExtensionSession.cancel(download) }
        guard case .url(let file) = download.wire else {
            throw BAError(.downloadNotScheduled, message: "the download was not scheduled")
        }
        try session(file.applicationGroup.text).cancel(download)
    }

    /// Returns the session and the file of a valid download of an application.
    private func accepted(
        _ download: BADownload
    ) throws(BAError) -> (DownloadSession, ExtensionURLDownload) {
        guard case .url(let file) = download.wire else {
            throw BAError(
                .downloadInvalid,
                message: "an application does not schedule downloads of asset packs: use "
                    + "'AssetPackManager.ensureLocalAvailability(of:)'"
            )
        }
        guard !download.identifier.isEmpty else {
            throw BAError(.downloadInvalid, message: "expected an identifier, found none")
        }
        if let refusal = ExtensionRules.refusal(ofAny: file) {
            throw BAError(.downloadInvalid, message: "\(refusal)")
        }
        guard !download.isEssential else {
            throw BAError(
                .downloadEssentialDownloadNotPermitted,
                message: "a download of an application cannot be essential"
            )
        }
        return (try session(file.applicationGroup.text), file)
    }

    /// Returns the sessions of all known groups.
    private func sessions() throws(BAError) -> [DownloadSession] {
        if let group = applicationGroupIdentifier { _ = try session(group) }
        let sessions = state.withLock { $0.connectors.values.map(\.session) }
        guard !sessions.isEmpty else {
            throw BAError(
                .callerConnectionNotAccepted,
                message: "the application group is not known: set 'applicationGroupIdentifier'"
            )
        }
        return sessions.sorted { $0.group < $1.group }
    }

    /// Returns the session of a group, and starts delivering its events to the delegate.
    private func session(_ group: String) throws(BAError) -> DownloadSession {
        let identifier: ApplicationGroupID
        do throws(ValueError) {
            identifier = try ApplicationGroupID(group)
        } catch {
            throw BAError(.downloadInvalid, message: "application group: \(error)")
        }
        let (session, connector, isNew) = state.withLock { state in
            if let known = state.connectors[identifier] {
                return (known.session, known.connector, false)
            }
            let session = DownloadSession(identifier, environment: environment)
            let connector = DelegateConnector(session) { [weak self] in self?.delegate }
            state.connectors[identifier] = (session, connector)
            return (session, connector, true)
        }
        if isNew { connector.delegateDidChange() }
        do throws(ControlError) {
            try connector.retry()
        } catch {
            throw BAError(error)
        }
        return session
    }
}
