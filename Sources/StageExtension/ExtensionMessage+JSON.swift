public import StageModel
import SystemPackage

extension ExtensionMessage {
    /// Decodes a message, for use by an extension.
    ///
    /// Ignores unknown members; optional members may be `null`.
    ///
    /// - Throws: `ManifestError` that names the first invalid member.
    public init(json: [UInt8]) throws(ManifestError) {
        self = try ManifestError.decode(
            MessageDocument.self,
            from: json,
            limit: Self.byteLimit
        ).message
    }

    /// Maximum bytes of a message, which describes all packs of a manifest.
    private static let byteLimit = 4 * ManifestLimits.byteCount

    /// Encodes the message as JSON on one line, with members sorted by name.
    public func json() -> [UInt8] {
        var members = request.members
        members.append(.init("protocol", .integer(Int64(Self.protocolVersion))))
        members.append(.init("kind", .string(kind.rawValue)))
        switch self {
        case .downloads(let request):
            members.append(.init("packs", .array(request.packs.map(\.tree))))
        case .finished(_, let download, let file):
            members.append(.init("download", download.tree))
            members.append(.init("file", .string(file.string)))
        case .failed(_, let download, let failure):
            members.append(.init("download", download.tree))
            members.append(.init("error", failure.tree))
        case .challenge(_, let download, let challenge):
            members.append(.init("download", download.tree))
            members.append(.init("challenge", challenge.tree))
        }
        return JSONTree.object(members).line
    }
}

/// JSON form of a message.
private struct MessageDocument: JSONReadable {
    var message: ExtensionMessage

    private enum Key: String, CodingKey {
        case `protocol`, kind, download, file, error, challenge
    }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        let version = try members.number(.protocol, in: .min ... .max)
        try ManifestError.check(version: version, known: ExtensionMessage.protocolVersion)
        let kind = try members.choice(ExtensionMessage.Kind.self, for: .kind)
        let request = try RequestDocument(reading: node, hasPacks: kind == .downloads).request
        switch kind {
        case .downloads:
            message = .downloads(request)
        case .finished:
            let download = try members.value(DownloadDocument.self, for: .download).download
            message = .finished(request, download, file: try members.path(of: .file))
        case .failed:
            let download = try members.value(DownloadDocument.self, for: .download).download
            let failure = try members.value(FailureDocument.self, for: .error).failure
            message = .failed(request, download, failure)
        case .challenge:
            let download = try members.value(DownloadDocument.self, for: .download).download
            let challenge = try members.value(ChallengeDocument.self, for: .challenge).challenge
            message = .challenge(request, download, challenge)
        }
    }
}

private struct FailureDocument: JSONReadable {
    var failure: ExtensionFailure

    private enum Key: String, CodingKey { case code, message }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        failure = ExtensionFailure(
            code: try members.number(.code, in: .min ... .max),
            message: try members.string(.message)
        )
    }
}

private struct ChallengeDocument: JSONReadable {
    var challenge: ExtensionChallenge

    private enum Key: String, CodingKey { case method, host, realm }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        challenge = ExtensionChallenge(
            method: try members.string(.method),
            host: try members.string(.host),
            realm: members.has(.realm) ? try members.string(.realm) : nil
        )
    }
}

extension ExtensionFailure {
    fileprivate var tree: JSONTree {
        .members(("code", .integer(Int64(code))), ("message", .string(message)))
    }
}

extension ExtensionChallenge {
    fileprivate var tree: JSONTree {
        .members(
            ("method", .string(method)),
            ("host", .string(host)),
            ("realm", realm.map { .string($0) })
        )
    }
}

extension JSONMembers {
    /// Returns the value of a string enumeration.
    func choice<Choice>(
        _ type: Choice.Type,
        for key: Key
    ) throws(ManifestError) -> Choice
    where Choice: RawRepresentable<String> & CaseIterable {
        try text(key) { text throws(ValueError) in
            guard let choice = Choice(rawValue: text) else {
                let known = Choice.allCases.map { "'\($0.rawValue)'" }
                throw ValueError(expected: "one of \(known.joined(separator: ", "))", text: text)
            }
            return choice
        }
    }

    /// Returns an absolute path.
    func path(of key: Key) throws(ManifestError) -> FilePath {
        try text(key) { text throws(ValueError) in
            let path = FilePath(text)
            guard path.isAbsolute, !text.utf8.contains(0) else {
                throw ValueError(expected: "an absolute path", text: text)
            }
            return path
        }
    }
}
