import StageModel

/// JSON form of a download in messages and answers.
struct DownloadDocument: JSONReadable {
    var download: ExtensionDownload

    enum Key: String, CodingKey {
        case pack, identifier, url, fileSize, essential, priority, applicationGroup, headers
    }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        let essential = members.has(.essential) ? try members.boolean(.essential) : nil
        let priority =
            members.has(.priority) ? try members.number(.priority, in: .min ... .max) : nil
        guard members.has(.pack) != members.has(.url) else {
            throw node.fault(
                ValueError(
                    expected: "a member 'pack' or a member 'url'",
                    found: members.has(.pack) ? "both" : "neither"
                )
            )
        }
        guard members.has(.url) else {
            let id = try members.text(.pack) { text throws(ValueError) in try PackID(text) }
            download = .pack(id, essential: essential, priority: priority)
            return
        }
        var file = ExtensionURLDownload(
            identifier: try members.text(.identifier, as: Self.checkedIdentifier),
            url: try members.text(.url) { text throws(ValueError) in
                try URLReference.check(text, form: .absolute)
                return text
            },
            fileSize: try members.number(.fileSize, in: .min ... .max),
            applicationGroup: try members.text(.applicationGroup) { text throws(ValueError) in
                try ApplicationGroupID(text)
            }
        )
        file.isEssential = essential ?? false
        file.priority = priority ?? 0
        if members.has(.headers) {
            file.headers = try members.value(HeadersDocument.self, for: .headers).headers
        }
        download = .url(file)
    }

    private static func checkedIdentifier(_ text: String) throws(ValueError) -> String {
        guard (1...ExtensionDownload.identifierLength).contains(text.utf8.count),
            !text.unicodeScalars.contains(where: \.isUnsafeForDisplay)
        else {
            throw ValueError(
                expected: "an identifier of at most \(ExtensionDownload.identifierLength) bytes",
                text: text
            )
        }
        return text
    }
}

/// Member `headers`, an object of strings.
private struct HeadersDocument: JSONReadable {
    var headers: [String: String] = [:]

    init(reading node: JSONNode) throws(ManifestError) {
        // Each member is looked at once: an extension may send a hundred thousand.
        for (name, member) in try node.members() {
            guard let text = member.string else {
                throw member.fault(ValueError(expected: "a string", found: member.value.noun))
            }
            headers[name] = text
        }
    }
}

extension ExtensionDownload {
    /// Maximum bytes of an identifier.
    static let identifierLength = 1024

    /// JSON form of the download in messages and answers.
    var tree: JSONTree {
        switch self {
        case .pack(let id, let essential, let priority):
            .members(
                ("pack", .string(id.text)),
                ("essential", essential.map { .boolean($0) }),
                ("priority", priority.map { .integer(Int64($0)) })
            )
        case .url(let download):
            .members(
                ("identifier", .string(download.identifier)),
                ("url", .string(download.url)),
                ("fileSize", .integer(Int64(download.fileSize))),
                ("essential", .boolean(download.isEssential)),
                ("priority", .integer(Int64(download.priority))),
                ("applicationGroup", .string(download.applicationGroup.text)),
                (
                    "headers",
                    .object(download.headers.map { JSONTree.Member($0.key, .string($0.value)) })
                )
            )
        }
    }
}

extension JSONTree {
    /// Returns an object of those members that are not `nil`.
    static func members(_ members: (String, JSONTree?)...) -> JSONTree {
        .object(
            members.compactMap { name, value in value.map { JSONTree.Member(name, $0) } }
        )
    }
}
