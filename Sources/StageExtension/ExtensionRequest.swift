public import StageModel
public import SystemPackage

/// What a downloader extension is asked, and everything that it may know for its answer.
public struct ExtensionRequest: Hashable, Sendable {
    /// Why content is asked for.
    public var request: ContentRequest
    /// The application that is registered.
    public var application: ApplicationID
    /// The version of the application that is installed.
    public var applicationVersion: String
    /// The group whose container the packs are staged in.
    public var applicationGroup: ApplicationGroupID
    /// The manifest that was accepted, a file that the extension may read.
    public var manifest: FilePath
    /// The group's shared folder, in which the extension may do as it likes; it has to exist.
    public var container: FilePath
    /// A folder of the extension's own, made for each message and removed after it.
    public var scratch: FilePath
    /// The bytes that may still be transferred for what is not essential; `nil` for no restriction.
    public var restrictedDownloadSizeRemaining: Int?
    /// The bytes that may still be transferred for what is essential; `nil` for no restriction.
    public var restrictedEssentialDownloadSizeRemaining: Int?
    /// The packs of the manifest, in its order.
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

/// One pack as a downloader extension sees it.
public struct ExtensionPack: Hashable, Sendable {
    /// The name of the pack.
    public var id: PackID
    /// The version that the manifest offers.
    public var version: Int
    /// When the pack is fetched.
    public var policy: DownloadPolicy
    /// The exact size of its archive.
    public var downloadSize: ByteCount
    /// The sum of the sizes of its files.
    public var installedSize: ByteCount
    /// The version that is staged; `nil` if none is.
    public var stagedVersion: Int?
    /// Whether it would be fetched now if there were no extension.
    public var isProposed: Bool
    /// Where its archive is, absolute, in the order in which to ask.
    public var urls: [String]
    /// What the publisher says of it, as JSON text; `nil` for nothing.
    public var userInfo: String?

    /// Creates what an extension sees of a pack of a manifest.
    ///
    /// - Parameters:
    ///   - pack: The pack as the manifest offers it.
    ///   - urls: Where its archive is, absolute.
    ///   - stagedVersion: The version that is staged.
    ///   - isProposed: Whether it would be fetched now if there were no extension.
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
