import StageModel

/// Rules for the downloads that an extension may request, applied to its answer.
///
/// The allow list of domains and the download allowances are checked elsewhere, since they apply to all downloads.
public struct ExtensionRules: Sendable {
    /// Maximum number of downloads in an answer.
    public static let downloads = 10_000

    /// The request that the answer belongs to.
    public let request: ExtensionRequest
    /// Identifiers of the packs in the manifest.
    private let packs: Set<PackID>
    /// Packs by archive URL and size, which identify a download as that of a pack.
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

    /// Violation of a rule by a download.
    public struct Violation: Error, Equatable, Sendable {
        /// Identifier of the download.
        public var download: String
        /// Reason of the refusal.
        public var refusal: ExtensionRefusal

        /// Creates a violation.
        public init(download: String, refusal: ExtensionRefusal) {
            self.download = download
            self.refusal = refusal
        }
    }

    /// Returns the requested downloads, with downloads of a pack's archive converted to the pack.
    ///
    /// A download by URL counts as a pack's if it has the size of the pack and one of its URLs.
    ///
    /// - Throws: ``Violation`` for the first download that violates a rule; none is accepted then.
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

    /// Converts the download of a pack's archive to the pack.
    private func counted(_ download: ExtensionDownload) -> ExtensionDownload {
        guard case .url(let file) = download,
            let id = archives[Archive(url: file.url, size: Int64(file.fileSize))]
        else { return download }
        return .pack(id, essential: file.isEssential, priority: file.priority)
    }

    /// Returns the reason to refuse a download, regardless of the others; `nil` if it is permitted.
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

    /// Returns the reason to refuse a file in any request; `nil` if it can be downloaded.
    public static func refusal(ofAny file: ExtensionURLDownload) -> ExtensionRefusal? {
        guard ManifestTrust.isNetwork(file.url) else { return .insecure(url: file.url) }
        guard file.fileSize >= 1 else { return .fileSize(file.fileSize) }
        let header = file.headers.sorted { $0.key < $1.key }.first(where: isForbidden)
        return header.map { .header(name: $0.key) }
    }

    /// Reason to refuse essential downloads in this request; `nil` if they are permitted.
    private var refusalOfEssential: ExtensionRefusal? {
        request.request == .periodic ? .essential(.periodic) : nil
    }

    /// Returns whether a header field is invalid (RFC 9110, section 5) or reserved for the host.
    private static func isForbidden(_ header: (key: String, value: String)) -> Bool {
        !header.key.isHTTPToken || !header.value.isHTTPFieldValue
            || hostsOwn.contains(header.key.lowercased())
    }

    /// Reserved header fields, on which resuming, framing and routing depend.
    private static let hostsOwn: Set<String> = [
        "accept-encoding", "connection", "content-length", "expect", "host", "if-match",
        "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "keep-alive",
        "proxy-authorization", "range", "te", "trailer", "transfer-encoding", "upgrade",
    ]
}
