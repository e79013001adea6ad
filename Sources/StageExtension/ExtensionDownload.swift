public import StageModel

/// Download that a downloader extension requests.
@nonexhaustive
public enum ExtensionDownload: Hashable, Sendable {
    /// Pack of the manifest; values that are `nil` come from the manifest.
    case pack(PackID, essential: Bool?, priority: Int?)
    /// File at any URL.
    case url(ExtensionURLDownload)

    /// Identifier of the download: the id of the pack, or the identifier that the extension chose.
    public var identifier: String {
        switch self {
        case .pack(let id, _, _): id.text
        case .url(let download): download.identifier
        }
    }
}

/// Download of a file that is not a pack of the manifest.
public struct ExtensionURLDownload: Hashable, Sendable {
    /// Identifier chosen by the extension, unique within an answer.
    public var identifier: String
    /// URL of the file: https, or http on this machine.
    public var url: String
    /// Exact size of the file in bytes.
    public var fileSize: Int
    /// `true` if the application waits for the file.
    public var isEssential: Bool
    /// Priority; higher values are downloaded first.
    public var priority: Int
    /// Group whose container receives the file.
    public var applicationGroup: ApplicationGroupID
    /// Header fields of the request.
    public var headers: [String: String]

    /// Creates a download that is not essential, with the default priority and without header fields.
    public init(
        identifier: String,
        url: String,
        fileSize: Int,
        applicationGroup: ApplicationGroupID
    ) {
        self.identifier = identifier
        self.url = url
        self.fileSize = fileSize
        self.applicationGroup = applicationGroup
        isEssential = false
        priority = 0
        headers = [:]
    }
}
