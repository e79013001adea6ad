public import ExtensionFoundation
public import Foundation
public import FoundationNetworking

/// A program that decides what is downloaded for an application.
///
/// A type that conforms and is marked `@main` is a complete program: the host starts it for each
/// request and each result, and ends it when it has answered. It has no network, sees of the file
/// system the manifest, its own folder and the system's libraries, and may write to the group's shared
/// folder (`containerURL(forSecurityApplicationGroupIdentifier:)`) and its temporary folder only.
/// What it prints goes to the host's log.
///
/// The manifest has StagePack's format, or that of the application where the registration says so. Differs from Apple's
/// protocol in `extensionWillTerminate()`, which Apple does not call any more either.
public protocol BADownloaderExtension: AppExtension {
    /// Returns what to download.
    ///
    /// - Parameters:
    ///   - request: Why content is asked for.
    ///   - manifestURL: The manifest, a file that can be read while this method runs.
    ///   - extensionInfo: What may still be spent.
    /// - Returns: The downloads, each with an identifier of its own.
    func downloads(
        for request: BAContentRequest,
        manifestURL: URL,
        extensionInfo: BAAppExtensionInfo
    ) -> Set<BADownload>

    /// Answers a server that wants to know who asks.
    func backgroundDownload(
        _ download: BADownload,
        didReceive challenge: URLAuthenticationChallenge
    ) async -> (URLSession.AuthChallengeDisposition, URLCredential?)

    /// Takes a file that was downloaded, which is removed afterwards unless it is moved; or hears of a
    /// pack that was staged, whose directory stays where it is.
    func backgroundDownload(_ finishedDownload: BADownload, finishedWithFileURL fileURL: URL)

    /// Hears of a download that failed, and may schedule another
    /// (``BADownloadManager/scheduleDownload(_:)``).
    func backgroundDownload(_ failedDownload: BADownload, failedWithError error: any Error)
}

extension BADownloaderExtension {
    /// Returns nothing to download.
    public func downloads(
        for request: BAContentRequest,
        manifestURL: URL,
        extensionInfo: BAAppExtensionInfo
    ) -> Set<BADownload> { [] }

    /// Answers as if there were no extension.
    public func backgroundDownload(
        _ download: BADownload,
        didReceive challenge: URLAuthenticationChallenge
    ) async -> (URLSession.AuthChallengeDisposition, URLCredential?) {
        (.performDefaultHandling, nil)
    }

    /// Leaves the file to be removed.
    public func backgroundDownload(
        _ finishedDownload: BADownload,
        finishedWithFileURL fileURL: URL
    ) {}

    /// Schedules nothing else.
    public func backgroundDownload(
        _ failedDownload: BADownload,
        failedWithError error: any Error
    ) {}
}

/// An extension that leaves everything to the policies of the manifest but the choice of packs.
public protocol ManagedDownloaderExtension: BADownloaderExtension {
    /// Whether the pack, which the policies call for now, is downloaded.
    func shouldDownload(_ assetPack: AssetPack) -> Bool
}

extension ManagedDownloaderExtension {
    /// Downloads the pack.
    public func shouldDownload(_ assetPack: AssetPack) -> Bool { true }

    /// Returns downloads of the packs that the policies call for and ``shouldDownload(_:)`` agrees to.
    public func downloads(
        for request: BAContentRequest,
        manifestURL: URL,
        extensionInfo: BAAppExtensionInfo
    ) -> Set<BADownload> {
        let wanted = ExtensionSession.assetPacks.filter { $0.isProposed && shouldDownload($0) }
        return Set(wanted.map { $0.download(for: request) })
    }
}
