public import StageModel
public import SystemPackage

/// Request to a downloader extension, with all information for its answer.
public struct ExtensionRequest: Hashable, Sendable {
    /// Reason for the request.
    public var request: ContentRequest
    /// Registered application.
    public var application: ApplicationID
    /// Installed version of the application.
    public var applicationVersion: String
    /// Group whose container the packs are staged in.
    public var applicationGroup: ApplicationGroupID
    /// Accepted manifest, a file that the extension may read.
    public var manifest: FilePath
    /// The group's shared folder, which must exist and in which the extension may create and change files.
    public var container: FilePath
    /// Scratch folder, created for each message and removed afterwards.
    public var scratch: FilePath
    /// Remaining allowance for downloads that are not essential, in bytes; `nil` for no restriction.
    public var restrictedDownloadSizeRemaining: Int?
    /// Remaining allowance for essential downloads, in bytes; `nil` for no restriction.
    public var restrictedEssentialDownloadSizeRemaining: Int?
    /// Packs of the manifest, in its order.
    public var packs: [ExtensionPack]

    /// Creates a request without restrictions and packs.
    public init(
        _ request: ContentRequest,
        application: ApplicationID,
        applicationVersion: String,
        applicationGroup: ApplicationGroupID,
        manifest: FilePath,
        container: FilePath,
        scratch: FilePath
    ) {
        self.request = request
        self.application = application
        self.applicationVersion = applicationVersion
        self.applicationGroup = applicationGroup
        self.manifest = manifest
        self.container = container
        self.scratch = scratch
        restrictedDownloadSizeRemaining = nil
        restrictedEssentialDownloadSizeRemaining = nil
        packs = []
    }
}

/// Pack as described to a downloader extension.
public struct ExtensionPack: Hashable, Sendable {
    /// Identifier of the pack.
    public var id: PackID
    /// Version that the manifest offers.
    public var version: Int
    /// Download policy of the pack.
    public var policy: DownloadPolicy
    /// Exact size of the archive.
    public var downloadSize: ByteCount
    /// Total size of the pack's files.
    public var installedSize: ByteCount
    /// Staged version; `nil` if there is none.
    public var stagedVersion: Int?
    /// `true` if the pack would be downloaded now without an extension.
    public var isProposed: Bool
    /// Absolute URLs of the archive, in order of preference.
    public var urls: [String]
    /// User info of the publisher, as JSON text; `nil` if there is none.
    public var userInfo: String?

    /// Creates the description of a pack.
    ///
    /// - Parameters:
    ///   - pack: The pack of the manifest.
    ///   - urls: The absolute URLs of its archive.
    ///   - stagedVersion: The staged version.
    ///   - isProposed: Whether the pack would be downloaded now without an extension.
    public init(_ pack: Pack, urls: [String], stagedVersion: Int?, isProposed: Bool) {
        id = pack.id
        version = pack.version
        policy = pack.policy
        downloadSize = pack.downloadSize
        installedSize = pack.installedSize
        self.stagedVersion = stagedVersion
        self.isProposed = isProposed
        self.urls = urls
        userInfo = pack.userInfo
    }
}
