/// What a package or an administrator says about an installed application: where its manifest is, how
/// far that is believed, and what may be spent on its packs.
public struct Registration: Hashable, Sendable {
    /// The major version of the format that this code reads.
    public static let formatVersion = 1

    /// The application that is registered.
    public var application: ApplicationID
    /// The version of the application that is installed.
    public var version: String
    /// The group whose container the packs are staged in.
    public var group: ApplicationGroupID
    /// Where the manifest is, in order of preference; at least one.
    public var manifestURLs: [String]
    /// Why the manifest is believed.
    public var trust: Trust
    /// What may be spent, and where content may come from; `nil` for no restriction.
    public var restrictions: Restrictions?
    /// The most bytes that the group's container may hold in packs; `nil` for no limit.
    ///
    /// Where several applications of a group have one, the smallest counts.
    public var quota: ByteCount?
    /// The format of the manifest.
    public var manifestFormat: ManifestFormat
    /// The program that decides about downloads; `nil` for none.
    public var downloaderExtension: Program?
    /// The program that the daemon launches when the transfers of the application's background sessions have ended and
    /// the application does not run; `nil` for the executable that made the session.
    public var backgroundEventsHandler: Program?
    /// The conditions of network and power under which periodic runs download packs that are not essential.
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

    /// A format of manifests.
    public enum ManifestFormat: String, Hashable, Sendable, CaseIterable {
        /// The format of ``Manifest``.
        case stagepack
        /// A format of the application's own, which its downloader extension reads; such a manifest offers no packs.
        case application
    }

    /// Why a manifest is believed.
    public enum Trust: Hashable, Sendable {
        /// Because of the transport alone: TLS, or the machine itself.
        case transport
        /// Because keys that the root metadata in the file at `path` names have signed it
        /// (The Update Framework).
        ///
        /// In a registration the path may be relative to the registration's directory; of one that was
        /// read from a file it is absolute.
        case root(path: String)
        /// Because keys that root metadata in the registration itself names have signed it.
        ///
        /// `json` is the signed metadata as compact JSON, members sorted by name. It is not verified yet.
        case inlineRoot(json: String)
    }

    /// What may be spent on an application's packs, under the names of Apple's property list.
    public struct Restrictions: Hashable, Sendable {
        /// The most bytes to transfer for packs that are not essential.
        public var downloadAllowance: ByteCount?
        /// The most bytes to transfer for essential packs.
        public var essentialDownloadAllowance: ByteCount?
        /// The most bytes that packs that are not essential may have when installed.
        public var maxInstallSize: ByteCount?
        /// The most bytes that essential packs may have when installed.
        public var essentialMaxInstallSize: ByteCount?
        /// The hosts that content may come from: names, each exact or, with `*.` before it, standing
        /// for every name below it.
        public var downloadDomainAllowList: [String]?

        /// Creates restrictions that restrict nothing yet.
        public init() {}
    }

    /// A program to start.
    public struct Program: Hashable, Sendable {
        /// The absolute path of the executable.
        public var path: String
        /// Its arguments, without its name.
        public var arguments: [String]

        /// Creates a program from its path and arguments.
        public init(path: String, arguments: [String] = []) {
            self.path = path
            self.arguments = arguments
        }
    }
}
