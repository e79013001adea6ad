public import StageModel

/// What a downloader extension wants to have downloaded.
public enum ExtensionDownload: Hashable, Sendable {
    /// A pack of the manifest; what is `nil` is as the manifest says.
    case pack(PackID, essential: Bool?, priority: Int?)
    /// A file of the extension's own choosing.
    case url(ExtensionURLDownload)

    /// What the extension calls it: the id of a pack, or the identifier it gave.
    public var identifier: String {
        switch self {
        case .pack(let id, _, _): id.text
        case .url(let download): download.identifier
        }
    }
}

/// A file that a downloader extension wants, which is no pack of the manifest.
public struct ExtensionURLDownload: Hashable, Sendable {
    /// What the extension calls it, once in each answer.
    public var identifier: String
    /// Where the file is: an https URL, or an http URL of this machine.
    public var url: String
    /// The exact size of the file, in bytes.
    public var fileSize: Int
    /// Whether the application waits for it.
    public var isEssential: Bool
    /// Orders downloads: higher comes first.
    public var priority: Int
    /// The group whose container it is for.
    public var applicationGroup: ApplicationGroupID
    /// The fields of the request's head that the extension sets.
    public var headers: [String: String]

    /// Creates a download that is not essential, of the default priority and without fields.
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
