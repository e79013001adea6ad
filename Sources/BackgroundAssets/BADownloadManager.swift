import Foundation
import StageControl
import StageExtension
import StageModel
import StageSystem
import Synchronization

/// The downloads of an application.
///
/// In an application they are the daemon's (`stagepackd`), and go on when the process ends: every process of
/// the application finds them again. Its methods that do not suspend wait for the daemon, on the thread
/// of the caller. In a downloader extension the manager schedules downloads when one has failed, and has
/// those that it scheduled.
///
/// Differs from Apple's class in ``applicationGroupIdentifier``, which the property list of the application
/// says there. The restrictions of an application's downloads bind until its first launch, and so never
/// those that it schedules itself.
public final class BADownloadManager: Sendable {
    /// The one manager of the process.
    public static let shared = BADownloadManager(
        environment: ProcessEnvironment.current
    ) {
        ExtensionSession.request
    }

    private struct State {
        weak var delegate: (any BADownloadManagerDelegate)?
        var group: String?
        var links: [ApplicationGroupID: (session: DownloadSession, link: DelegateLink)] = [:]
    }

    private let environment: [String: String]
    /// What the process was asked as an extension, if it is one.
    let request: @Sendable () -> ExtensionRequest?
    private let state = Mutex(State())

    /// Creates a manager of a process with this environment.
    init(
        environment: [String: String],
        request: @escaping @Sendable () -> ExtensionRequest?
    ) {
        self.environment = environment
        self.request = request
    }

    /// The group of the application, `BAAppGroupID` in Apple's property list: to be set before the first
    /// call that has no download to take it from.
    ///
    /// Not of Apple's class. A text that can be no group is an error of the calls that need one.
    public var applicationGroupIdentifier: String? {
        get { state.withLock { $0.group } }
        set {
            state.withLock { $0.group = newValue }
            // What is no group is told to whoever asks something of it.
            if let newValue { _ = try? session(newValue) }
        }
    }

    /// Hears what becomes of the downloads, those of before included; it is not kept alive.
    ///
    /// As long as there is none in any process, ends and files stay with the daemon, and no extension is
    /// started for them. An extension has no delegate. Where the process may have no more threads, the next call of the
    /// manager says so, and tries again.
    public var delegate: (any BADownloadManagerDelegate)? {
        get { state.withLock { $0.delegate } }
        set {
            let links = state.withLock { state in
                state.delegate = newValue
                return state.links.values.map(\.link)
            }
            for link in links { link.delegateDidChange() }
        }
    }

    /// The downloads that are under way, and those of whose end no delegate has heard.
    ///
    /// In an extension, those that it has scheduled.
    public var currentDownloads: [BADownload] {
        get async throws {
            try await withBlockingThread { try self.fetchCurrentDownloads() }
        }
    }

    /// Returns what ``currentDownloads`` has.
    ///
    /// - Throws: ``BAError`` if no group is known, or the daemon does not answer.
    public func fetchCurrentDownloads() throws -> [BADownload] {
        guard request() == nil else { return ExtensionSession.scheduled }
        return try sessions().flatMap { try $0.downloads() }
    }

    /// Calls `completionHandler` with what ``currentDownloads`` has, on a thread of the manager's.
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

    /// Asks for a download, at a time of the system's choosing.
    ///
    /// Two processes that schedule the same identifier at the same moment may both succeed:
    /// ``withExclusiveControl(_:)`` keeps them apart.
    ///
    /// - Throws: ``BAError`` if it breaks a rule, was asked for before, or the daemon does not answer; in
    ///   an extension, if this is no answer to a failure.
    public func scheduleDownload(_ download: BADownload) throws {
        guard request() == nil else { return try ExtensionSession.schedule(download) }
        let (session, file) = try accepted(download)
        try session.schedule(file, DownloadNote(download))
    }

    /// Asks for a download as ``scheduleDownload(_:)`` does.
    public func schedule(_ download: BADownload) throws { try scheduleDownload(download) }

    /// Has a download made now, on any network and whatever the power: the one of this identifier that
    /// was scheduled, else a new one.
    ///
    /// It fails as soon as it cannot go on, instead of being tried again; but only while some process has
    /// a delegate.
    ///
    /// - Throws: ``BAError`` if it breaks a rule, or the daemon does not answer; always in an extension.
    public func startForegroundDownload(_ download: BADownload) throws {
        guard request() == nil else {
            throw BAError(
                .callFromExtensionNotAllowed,
                "an extension starts nothing in the foreground"
            )
        }
        let (session, file) = try accepted(download)
        try session.start(file, DownloadNote(download))
    }

    /// Ends a download, of which the delegate of this process hears no more.
    ///
    /// - Throws: ``BAError`` if it was not scheduled or has ended, or the daemon does not answer.
    public func cancel(_ download: BADownload) throws {
        guard request() == nil else { return try ExtensionSession.cancel(download) }
        guard case .url(let file) = download.wire else {
            throw BAError(.downloadNotScheduled, "the download was not scheduled")
        }
        try session(file.applicationGroup.text).cancel(download)
    }

    /// The session of a download and its file, if an application may have it.
    private func accepted(
        _ download: BADownload
    ) throws(BAError) -> (DownloadSession, ExtensionURLDownload) {
        guard case .url(let file) = download.wire else {
            throw BAError(.downloadInvalid, "packs are staged by their host")
        }
        guard !download.identifier.isEmpty else {
            throw BAError(.downloadInvalid, "expected an identifier, found none")
        }
        if let refusal = ExtensionRules.refusal(ofAny: file) {
            throw BAError(.downloadInvalid, "\(refusal)")
        }
        guard !download.isEssential else {
            throw BAError(
                .downloadEssentialDownloadNotPermitted,
                "nothing is essential that an application asks for"
            )
        }
        return (try session(file.applicationGroup.text), file)
    }

    /// The sessions of the groups that are known.
    private func sessions() throws(BAError) -> [DownloadSession] {
        if let group = applicationGroupIdentifier { _ = try session(group) }
        let sessions = state.withLock { $0.links.values.map(\.session) }
        guard !sessions.isEmpty else {
            throw BAError(
                .callerConnectionInvalid,
                "the application group is not known: set 'applicationGroupIdentifier'"
            )
        }
        return sessions.sorted { $0.group < $1.group }
    }

    /// The session of a group, of which the delegate hears from now on.
    private func session(_ group: String) throws(BAError) -> DownloadSession {
        let identifier: ApplicationGroupID
        do throws(ValueError) {
            identifier = try ApplicationGroupID(group)
        } catch {
            throw BAError(.downloadInvalid, "application group: \(error)")
        }
        let (session, link, isNew) = state.withLock { state in
            if let known = state.links[identifier] { return (known.session, known.link, false) }
            let session = DownloadSession(identifier, environment: environment)
            let link = DelegateLink(session) { [weak self] in self?.delegate }
            state.links[identifier] = (session, link)
            return (session, link, true)
        }
        if isNew { link.delegateDidChange() }
        do throws(ControlError) {
            try link.retry()
        } catch {
            throw BAError(error)
        }
        return session
    }
}
