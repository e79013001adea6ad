public import Foundation
import Glibc
import StageExtension
import StageSystem
import SystemPackage

/// The downloads of an application, as an extension sees them.
///
/// Differs from Apple's class in what it can do: an extension schedules downloads when one has failed,
/// and sees those that it scheduled. What runs elsewhere is the host's business.
public final class BADownloadManager: Sendable {
    /// The one manager of the process.
    public static let shared = BADownloadManager()

    private init() {}

    /// The downloads that this process has scheduled.
    public var currentDownloads: [BADownload] {
        get async throws { try fetchCurrentDownloads() }
    }

    /// Returns the downloads that this process has scheduled.
    public func fetchCurrentDownloads() throws -> [BADownload] { ExtensionSession.scheduled }

    /// Asks for a download, at a time of the host's choosing.
    ///
    /// - Throws: ``BAError`` if it was asked for before, or this is no answer to a failure.
    public func scheduleDownload(_ download: BADownload) throws {
        try ExtensionSession.schedule(download)
    }

    /// Asks for a download, at a time of the host's choosing.
    ///
    /// - Throws: ``BAError`` if it was asked for before, or this is no answer to a failure.
    public func schedule(_ download: BADownload) throws {
        try ExtensionSession.schedule(download)
    }

    /// Refuses: an extension starts nothing in the foreground.
    ///
    /// - Throws: ``BAError`` with ``BAErrorCode/callFromExtensionNotAllowed``, always.
    public func startForegroundDownload(_ download: BADownload) throws {
        throw BAError(
            .callFromExtensionNotAllowed,
            "an extension starts nothing in the foreground"
        )
    }

    /// Takes back a download that this process has scheduled.
    public func cancel(_ download: BADownload) throws { try ExtensionSession.cancel(download) }

    /// Calls `handler` while no other process that asks for the same is called.
    ///
    /// Waits until those before have ended; the second argument is the reason where the first is `false`.
    public func withExclusiveControl(_ handler: (Bool, (any Error)?) -> Void) {
        withExclusiveControl(beforeDate: .distantFuture, perform: handler)
    }

    /// Calls `handler` while no other process that asks for the same is called, or with `false` if that
    /// did not come to pass before `date`.
    public func withExclusiveControl(
        beforeDate date: Date,
        perform handler: (Bool, (any Error)?) -> Void
    ) {
        guard let request = ExtensionSession.request else {
            handler(false, BAError(.callerConnectionInvalid, "the process is no extension"))
            return
        }
        do {
            let file = try Directory.open(request.container).file(updating: Self.lockName)
            // The file is closed, and so unlocked, after the handler has returned.
            while flock(file.descriptor.rawValue, LOCK_EX | LOCK_NB) != 0 {
                guard Date.now < date else {
                    handler(false, BAError(.downloadAlreadyScheduled, "others are in control"))
                    return
                }
                Thread.sleep(forTimeInterval: 0.01)
            }
            handler(true, nil)
        } catch {
            handler(false, error)
        }
    }

    /// The file in the group's shared folder that whoever is in control has locked (flock(2)).
    private static let lockName: FilePath = ".BADownloadManager.lock"
}
