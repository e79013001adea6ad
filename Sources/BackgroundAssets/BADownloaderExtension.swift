public import ExtensionFoundation
public import Foundation
public import FoundationNetworking

/// A program that decides which files are downloaded for an application.
///
/// A conforming type marked `@main` is a complete program: the host starts it for each request and each
/// result, and ends it after its answer. It has no network access, can read only the manifest, its own
/// directory and the system's libraries, and can write only to the group's shared directory
/// (`containerURL(forSecurityApplicationGroupIdentifier:)`) and its temporary directory. Its output goes to
/// the host's log.
///
/// The manifest has StagePack's format, or the application's own if the registration says so. Lacks
/// `extensionWillTerminate()` of Apple's protocol, which Apple does not call any more either.
public protocol BADownloaderExtension: AppExtension {
    /// Returns the downloads.
    ///
    /// - Parameters:
    ///   - request: The occasion of the request.
    ///   - manifestURL: The manifest, a file that can be read while this method runs.
    ///   - extensionInfo: The remaining download allowance.
    /// - Returns: The downloads, with unique identifiers.
    func downloads(
        for request: BAContentRequest,
        manifestURL: URL,
        extensionInfo: BAAppExtensionInfo
    ) -> Set<BADownload>

    /// Answers an authentication challenge.
    func backgroundDownload(
        _ download: BADownload,
        didReceive challenge: URLAuthenticationChallenge
    ) async -> (URLSession.AuthChallengeDisposition, URLCredential?)

    /// Receives a downloaded file, which is removed afterwards unless it is moved, or a staged pack, whose
    /// directory must stay in place.
    func backgroundDownload(_ finishedDownload: BADownload, finishedWithFileURL fileURL: URL)

    /// Receives the failure of a download, a ``BAError``, and may schedule another one
    /// (``BADownloadManager/scheduleDownload(_:)``).
    ///
    /// Beside the codes that a ``BADownloadManagerDelegate`` receives, it can have
    /// ``BAErrorCode/downloadWouldExceedAllowance``, ``BAErrorCode/downloadDoesNotExist`` for an unknown pack, and
    /// ``BAErrorCode/sessionDownloadDisallowedByDomain``. ``BAErrorCode/downloadFailedToStart`` also stands for a pack that
    /// must not be staged, such as a pinned one.
    func backgroundDownload(_ failedDownload: BADownload, failedWithError error: any Error)
}

extension BADownloaderExtension {
    /// Returns no downloads.
    public func downloads(
        for request: BAContentRequest,
        manifestURL: URL,
        extensionInfo: BAAppExtensionInfo
    ) -> Set<BADownload> { [] }

    /// Chooses default handling, without a credential.
    public func backgroundDownload(
        _ download: BADownload,
        didReceive challenge: URLAuthenticationChallenge
    ) async -> (URLSession.AuthChallengeDisposition, URLCredential?) {
        (.performDefaultHandling, nil)
    }

    /// Does not move the file, which is then removed.
    public func backgroundDownload(
        _ finishedDownload: BADownload,
        finishedWithFileURL fileURL: URL
    ) {}

    /// Schedules no other download.
    public func backgroundDownload(
        _ failedDownload: BADownload,
        failedWithError error: any Error
    ) {}
}

/// An extension that only filters the packs that the manifest's policies would download.
public protocol ManagedDownloaderExtension: BADownloaderExtension {
    /// Returns whether to download the pack, which the policies would download now.
    func shouldDownload(_ assetPack: AssetPack) -> Bool
}

extension ManagedDownloaderExtension {
    /// Downloads the pack.
    public func shouldDownload(_ assetPack: AssetPack) -> Bool { true }

    /// Returns downloads of the packs that the policies would download now and ``shouldDownload(_:)``
    /// accepts.
    public func downloads(
        for request: BAContentRequest,
        manifestURL: URL,
        extensionInfo: BAAppExtensionInfo
    ) -> Set<BADownload> {
        let wanted = ExtensionSession.assetPacks.filter { $0.isProposed && shouldDownload($0) }
        return Set(wanted.map { $0.download(for: request) })
    }
}
