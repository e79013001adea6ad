/// The registration of an installed application by its package or an administrator: manifest URLs, trust, and
/// limits for its packs.
public struct Registration: Hashable, Sendable {
    /// The major version of the format that this code reads.
    public static let formatVersion = 1

    /// The registered application.
    public var application: ApplicationID
    /// The installed version of the application.
    public var version: String
    /// The group whose container holds the packs.
    public var group: ApplicationGroupID
    /// The URLs of the manifest, in order of preference; at least one.
    public var manifestURLs: [String]
    /// The basis on which the manifest is trusted.
    public var trust: Trust
    /// Limits of transfers, sizes and hosts; `nil` for none.
    public var restrictions: Restrictions?
    /// The maximum number of bytes of packs in the group's container; `nil` for no limit.
    ///
    /// If several applications of a group have a quota, the smallest applies.
    public var quota: ByteCount?
    /// The format of the manifest.
    public var manifestFormat: ManifestFormat
    /// The downloader extension, which decides about downloads; `nil` for none.
    public var downloaderExtension: Program?
    /// The program that the daemon launches when the transfers of a background session have ended and the
    /// application is not running; `nil` for the executable that created the session.
    public var backgroundEventsHandler: Program?
    /// The network and power conditions under which periodic runs download packs that are not essential.
    public var updateConditions: UpdateConditions

    /// Creates a registration from its parts.
    public init(
        application: ApplicationID,
        version: String,
        group: ApplicationGroupID,
        manifestURLs: [String],
        trust: Trust
    ) {
        self.application = application
        self.version = version
        self.group = group
        self.manifestURLs = manifestURLs
        self.trust = trust
        restrictions = nil
        quota = nil
        manifestFormat = .stagepack
        downloaderExtension = nil
        backgroundEventsHandler = nil
        updateConditions = UpdateConditions()
    }

    /// The format of a manifest.
    @nonexhaustive
    public enum ManifestFormat: String, Hashable, Sendable, CaseIterable {
        /// The format of ``Manifest``.
        case stagepack
        /// A format of the application's own, which its downloader extension reads; such a manifest lists no
        /// packs.
        case application
    }

    /// The basis on which a manifest is trusted.
    @nonexhaustive
    public enum Trust: Hashable, Sendable {
        /// The transport: TLS, or a local file or server.
        case transport
        /// Signatures by keys of the root metadata in the file at `path` (The Update Framework).
        ///
        /// In a registration the path may be relative to the registration's directory; after reading the file
        /// it is absolute.
        case root(path: String)
        /// Signatures by keys of root metadata within the registration.
        ///
        /// `json` is the signed metadata as compact JSON, members sorted by name. It is not verified yet.
        case inlineRoot(json: String)
    }

    /// Limits of an application's packs, named as in Apple's property list.
    public struct Restrictions: Hashable, Sendable {
        /// The maximum number of bytes to transfer for packs that are not essential.
        public var downloadAllowance: ByteCount?
        /// The maximum number of bytes to transfer for essential packs.
        public var essentialDownloadAllowance: ByteCount?
        /// The largest installed size, in bytes, of the packs that are not essential.
        public var maxInstallSize: ByteCount?
        /// The largest installed size, in bytes, of the essential packs.
        public var essentialMaxInstallSize: ByteCount?
        /// The hosts that content may come from: exact names, or `*.` and a domain for all of its subdomains.
        public var downloadDomainAllowList: [String]?

        /// Creates restrictions without limits.
        public init() {}
    }

    /// An executable with arguments.
    public struct Program: Hashable, Sendable {
        /// The absolute path of the executable.
        public var path: String
        /// The arguments, without the program name.
        public var arguments: [String]

        /// Creates a program from its path and arguments.
        public init(path: String, arguments: [String] = []) {
            self.path = path
            self.arguments = arguments
        }
    }
}
