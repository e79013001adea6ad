import Foundation
public import FoundationNetworking
import StageExtension
import StageModel

/// A download of a file by URL.
///
/// If URL and size match the archive of a pack, the host treats it as a download of that pack: it verifies
/// and unpacks the archive, and reports the download under the pack's id.
///
/// Unlike Apple's class it uses only the URL and header fields of the `URLRequest`; the method is always GET.
public final class BAURLDownload: BADownload, @unchecked Sendable {
    /// Creates a download, essential or not.
    ///
    /// - Parameters:
    ///   - identifier: The application's name of the download.
    ///   - request: The URL of the file, https or local http, and header fields.
    ///   - essential: Whether the first launch waits for it; only for requests for an installation or an
    ///     update.
    ///   - fileSize: The exact size of the file in bytes; the download fails if it differs.
    ///   - applicationGroupIdentifier: The application group.
    ///   - priority: The order among the application's downloads.
    public convenience init(
        identifier: String,
        request: URLRequest,
        essential: Bool,
        fileSize: Int,
        applicationGroupIdentifier: String,
        priority: BADownload.Priority
    ) {
        // An invalid group is sent unchanged: the host rejects it by name.
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

    /// Creates a download that is not essential and has the default priority.
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

    /// Unavailable: the file size must be known, as Apple has required since deprecating these initialisers.
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

    /// Unavailable: the file size must be known, as Apple has required since deprecating these initialisers.
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
