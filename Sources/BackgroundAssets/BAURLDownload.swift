import Foundation
public import FoundationNetworking
import StageExtension
import StageModel

/// A download of a file by URL.
///
/// Where the URL and size are those of a pack's archive, the host takes it for a download of that pack:
/// it is verified and unpacked, and later spoken of under the id of the pack.
///
/// Differs from Apple's class in the request: of a `URLRequest` its URL and the fields of its head
/// count; the method is always GET.
public final class BAURLDownload: BADownload, @unchecked Sendable {
    /// Creates a download for which the first launch waits, or does not.
    ///
    /// - Parameters:
    ///   - identifier: What the application calls the download.
    ///   - request: Where the file is; https, or http of this machine.
    ///   - essential: Whether the first launch waits for it; only for requests for an installation or
    ///     an update.
    ///   - fileSize: The exact size of the file in bytes; the download fails if it has another.
    ///   - applicationGroupIdentifier: The group of the application.
    ///   - priority: Orders the downloads of the application.
    public convenience init(
        identifier: String,
        request: URLRequest,
        essential: Bool,
        fileSize: Int,
        applicationGroupIdentifier: String,
        priority: BADownload.Priority
    ) {
        // A group that cannot be one is sent as it is: the host refuses it by its name.
        var download = ExtensionURLDownload(
            identifier: identifier,
            url: request.url?.absoluteString ?? "",
            fileSize: fileSize,
            applicationGroup: ApplicationGroupID(unchecked: applicationGroupIdentifier)
        )
        download.isEssential = essential
        download.priority = priority.rawValue
        download.headers = request.allHTTPHeaderFields ?? [:]
        self.init(wire: download, state: .created)
    }

    /// Creates a download that is not essential and of the default priority.
    public convenience init(
        identifier: String,
        request: URLRequest,
        fileSize: Int,
        applicationGroupIdentifier: String
    ) {
        self.init(
            identifier: identifier,
            request: request,
            essential: false,
            fileSize: fileSize,
            applicationGroupIdentifier: applicationGroupIdentifier,
            priority: .default
        )
    }

    /// Refuses: the size of a download has to be known, as Apple says since these are deprecated.
    @available(
        *,
        unavailable,
        message: "use init(identifier:request:fileSize:applicationGroupIdentifier:)"
    )
    public convenience init(
        identifier: String,
        request: URLRequest,
        applicationGroupIdentifier: String
    ) { preconditionFailure("unavailable") }

    /// Refuses: the size of a download has to be known, as Apple says since these are deprecated.
    @available(
        *,
        unavailable,
        message:
            "use init(identifier:request:essential:fileSize:applicationGroupIdentifier:priority:)"
    )
    public convenience init(
        identifier: String,
        request: URLRequest,
        applicationGroupIdentifier: String,
        priority: BADownload.Priority
    ) { preconditionFailure("unavailable") }

    init(
        wire: ExtensionURLDownload,
        state: State,
        uniqueIdentifier: String = UUID().uuidString
    ) {
        super.init(
            wire: .url(wire),
            isEssential: wire.isEssential,
            priority: Priority(wire.priority),
            state: state,
            uniqueIdentifier: uniqueIdentifier
        )
    }
}
