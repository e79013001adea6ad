public import StageModel

extension ExtensionAnswer {
    /// Decodes an extension's answer to a message, for use by a host.
    ///
    /// Ignores unknown members; optional members may be `null`. ``ExtensionRules`` decide whether the extension may
    /// have the downloads it requests.
    ///
    /// - Throws: `ManifestError` that names the first invalid member.
    public init(json: [UInt8], to message: ExtensionMessage) throws(ManifestError) {
        switch message.kind {
        case .downloads, .failed:
            self = .downloads(try Self.read(DownloadsDocument.self, from: json).downloads)
        case .finished:
            _ = try Self.read(NothingDocument.self, from: json)
            self = .nothing
        case .challenge:
            self = .challenge(try Self.read(ChallengeAnswerDocument.self, from: json).answer)
        }
    }

    /// Maximum bytes of an answer: 1 MiB.
    public static let byteLimit = 1 << 20

    private static func read<Document: JSONReadable>(
        _ type: Document.Type,
        from json: [UInt8]
    ) throws(ManifestError) -> Document {
        try ManifestError.decode(type, from: json, limit: byteLimit)
    }

    /// Encodes the answer as JSON on one line, with members sorted by name.
    public func json() -> [UInt8] {
        let version = JSONTree.integer(Int64(ExtensionMessage.protocolVersion))
        return switch self {
        case .downloads(let downloads):
            JSONTree.members(
                ("protocol", version),
                ("downloads", .array(downloads.map(\.tree)))
            ).line
        case .nothing:
            JSONTree.members(("protocol", version)).line
        case .challenge(let answer):
            JSONTree.object([JSONTree.Member("protocol", version)] + answer.members).line
        }
    }
}

/// Members of answers.
///
/// If `protocol` is missing, the message's version applies.
private enum AnswerKey: String, CodingKey {
    case `protocol`
    case downloads
    case disposition
    case user
    case password
}

extension JSONMembers<AnswerKey> {
    /// Returns the members of an answer after checking its protocol version.
    fileprivate static func ofAnswer(_ node: JSONNode) throws(ManifestError) -> Self {
        let members = try JSONMembers(node, keyedBy: AnswerKey.self)
        if members.has(.protocol) {
            let version = try members.number(.protocol, in: .min ... .max)
            try ManifestError.check(version: version, known: ExtensionMessage.protocolVersion)
        }
        return members
    }
}

private struct DownloadsDocument: JSONReadable {
    var downloads: [ExtensionDownload]

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers.ofAnswer(node)
        // The number of downloads is limited by ``ExtensionRules``, not by the format.
        downloads = try members.values(
            DownloadDocument.self,
            for: .downloads,
            expected: "an array of downloads",
            atMost: .max
        ).map(\.download)
    }
}

private struct NothingDocument: JSONReadable {
    init(reading node: JSONNode) throws(ManifestError) { _ = try JSONMembers.ofAnswer(node) }
}

private struct ChallengeAnswerDocument: JSONReadable {
    var answer: ExtensionChallengeAnswer

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers.ofAnswer(node)
        answer =
            switch try members.choice(Disposition.self, for: .disposition) {
            case .performDefaultHandling: .performDefaultHandling
            case .cancelAuthenticationChallenge: .cancelAuthenticationChallenge
            case .rejectProtectionSpace: .rejectProtectionSpace
            case .useCredential:
                .useCredential(
                    user: try members.string(.user),
                    password: try members.string(.password)
                )
            }
    }
}

/// Values of the member `disposition`.
private enum Disposition: String, CaseIterable {
    case performDefaultHandling
    case useCredential
    case cancelAuthenticationChallenge
    case rejectProtectionSpace
}

extension ExtensionChallengeAnswer {
    fileprivate var members: [JSONTree.Member] {
        func member(_ disposition: Disposition) -> JSONTree.Member {
            .init("disposition", .string(disposition.rawValue))
        }
        return switch self {
        case .performDefaultHandling: [member(.performDefaultHandling)]
        case .cancelAuthenticationChallenge: [member(.cancelAuthenticationChallenge)]
        case .rejectProtectionSpace: [member(.rejectProtectionSpace)]
        case .useCredential(let user, let password):
            [
                member(.useCredential), .init("user", .string(user)),
                .init("password", .string(password)),
            ]
        }
    }
}
