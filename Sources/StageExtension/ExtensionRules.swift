import StageModel

/// What a downloader extension may ask for: a pure decision on its answer.
///
/// The allow list of domains and the allowances are not decided here: they hold for all downloads,
/// whoever asks.
public struct ExtensionRules: Sendable {
    /// The most downloads of one answer.
    public static let downloads = 10_000

    /// What the extension was asked.
    public let request: ExtensionRequest
    /// The ids of the packs of the manifest.
    private let packs: Set<PackID>
    /// The packs by the URLs of their archives, and the size that makes a download one of them.
    private let archives: [Archive: PackID]

    private struct Archive: Hashable {
        var url: String
        var size: Int64
    }

    /// Creates the rules for answers to a request.
    public init(_ request: ExtensionRequest) {
        self.request = request
        packs = Set(request.packs.map(\.id))
        archives = Dictionary(
            request.packs.flatMap { pack in
                pack.urls.map { (Archive(url: $0, size: pack.downloadSize.rawValue), pack.id) }
            },
            uniquingKeysWith: { first, _ in first }
        )
    }

    /// An answer that breaks a rule: which of its downloads, and which rule.
    public struct Violation: Error, Equatable, Sendable {
        /// The identifier of the download.
        public var download: String
        /// Why the extension may not have it.
        public var refusal: ExtensionRefusal

        /// Creates a violation of a rule by a download.
        public init(download: String, refusal: ExtensionRefusal) {
            self.download = download
            self.refusal = refusal
        }
    }

    /// Returns the downloads that count: those asked for, with those of a pack's archive as the pack.
    ///
    /// A download by URL is that of a pack if one of the pack's URLs and its size are the same.
    ///
    /// - Throws: ``Violation`` for the first download that breaks a rule; none of them count then.
    public func accepted(
        _ downloads: [ExtensionDownload]
    ) throws(Violation) -> [ExtensionDownload] {
        guard downloads.count <= Self.downloads else {
            throw Violation(
                download: downloads[Self.downloads].identifier,
                refusal: .tooMany(limit: Self.downloads, found: downloads.count)
            )
        }
        var identifiers: Set<String> = []
        var packs: Set<PackID> = []
        var accepted: [ExtensionDownload] = []
        for download in downloads {
            if let refusal = refusal(of: download) {
                throw Violation(download: download.identifier, refusal: refusal)
            }
            let counted = counted(download)
            var isNew = identifiers.insert(download.identifier).inserted
            if case .pack(let id, _, _) = counted { isNew = packs.insert(id).inserted && isNew }
            guard isNew else {
                throw Violation(download: download.identifier, refusal: .duplicate)
            }
            accepted.append(counted)
        }
        return accepted
    }

    /// The download of a pack in place of one of its archive.
    private func counted(_ download: ExtensionDownload) -> ExtensionDownload {
        guard case .url(let file) = download,
            let id = archives[Archive(url: file.url, size: Int64(file.fileSize))]
        else { return download }
        return .pack(id, essential: file.isEssential, priority: file.priority)
    }

    /// Why the download is refused whatever the others are, or `nil` if it is not.
    private func refusal(of download: ExtensionDownload) -> ExtensionRefusal? {
        switch download {
        case .pack(let id, let essential, _):
            guard packs.contains(id) else { return .unknownPack }
            return essential == true ? refusalOfEssential : nil
        case .url(let file):
            return refusal(of: file)
        }
    }

    private func refusal(of file: ExtensionURLDownload) -> ExtensionRefusal? {
        guard file.applicationGroup == request.applicationGroup else {
            return .otherGroup(expected: request.applicationGroup, found: file.applicationGroup)
        }
        return Self.refusal(ofAny: file) ?? (file.isEssential ? refusalOfEssential : nil)
    }

    /// Why a file can be downloaded for nobody, or `nil` if it can be.
    public static func refusal(ofAny file: ExtensionURLDownload) -> ExtensionRefusal? {
        guard ManifestTrust.isNetwork(file.url) else { return .insecure(url: file.url) }
        guard file.fileSize >= 1 else { return .fileSize(file.fileSize) }
        let header = file.headers.sorted { $0.key < $1.key }.first(where: isForbidden)
        return header.map { .header(name: $0.key) }
    }

    /// Why nothing is essential, or `nil` where something can be.
    private var refusalOfEssential: ExtensionRefusal? {
        request.request == .periodic ? .essential(.periodic) : nil
    }

    /// Whether a field is none (RFC 9110, section 5), or one that the host sets by itself.
    private static func isForbidden(_ header: (key: String, value: String)) -> Bool {
        let isToken = header.key.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "a")...UInt8(ascii: "z"):
                true
            default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
            }
        }
        let isText = header.value.utf8.allSatisfy { $0 == 0x09 || ($0 >= 0x20 && $0 != 0x7F) }
        return header.key.isEmpty || !isToken || !isText
            || hostsOwn.contains(header.key.lowercased())
    }

    /// The fields that resuming, framing and routing depend on.
    private static let hostsOwn: Set<String> = [
        "accept-encoding", "connection", "content-length", "expect", "host", "if-match",
        "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "keep-alive",
        "proxy-authorization", "range", "te", "trailer", "transfer-encoding", "upgrade",
    ]
}
