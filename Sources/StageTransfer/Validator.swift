import StageModel

/// What tells two versions of a resource apart, byte for byte (RFC 9110, section 8.8.1).
enum Validator: Hashable, Sendable, Codable {
    /// A strong entity tag, with its quotation marks.
    case entityTag(String)
    /// A date that counts as strong, as the server wrote it.
    case lastModified(String)

    /// What an `If-Range` field holds.
    var text: String {
        switch self {
        case .entityTag(let text), .lastModified(let text): text
        }
    }

    /// Finds the strong validator of an answer, or `nil` if it has none.
    ///
    /// A date counts only where there is no entity tag at all and the answer was dated at least a
    /// second later (RFC 9110, sections 8.8.2.2 and 13.1.5). An entity tag of content that was changed in the
    /// second of the answer, or later, does not count either: servers make tags of size and second.
    init?(_ head: ResponseHead) {
        if let tag = head.entityTag {
            guard Self.isStrong(tag), head.isOlderThanAnswer ?? true else { return nil }
            self = .entityTag(tag)
        } else if let modified = head.lastModified, head.isOlderThanAnswer == true {
            self = .lastModified(modified)
        } else {
            return nil
        }
    }

    /// Whether an answer that should continue the content of this version contradicts it.
    func isContradicted(by head: ResponseHead) -> Bool {
        switch self {
        case .entityTag(let tag): head.entityTag.map { $0 != tag } ?? false
        case .lastModified(let date): head.lastModified.map { $0 != date } ?? false
        }
    }

    /// The entity tag of an answer, or `nil` if it has none that tells two versions apart.
    static func entityTag(of head: ResponseHead) -> String? {
        guard case .entityTag(let tag) = Validator(head) else { return nil }
        return tag
    }

    /// Whether the text is a strong entity tag that can be sent back as it came.
    static func isStrong(_ tag: String) -> Bool {
        let bytes = tag.utf8
        return bytes.count >= 2 && bytes.first == UInt8(ascii: "\"")
            && bytes.last == UInt8(ascii: "\"")
            && bytes.dropFirst().dropLast().allSatisfy { (0x21...0x7E).contains($0) && $0 != 0x22 }
    }
}

extension ResponseHead {
    /// Whether the content last changed before the second of the answer; `nil` where a date is missing.
    fileprivate var isOlderThanAnswer: Bool? {
        guard let lastModified, let date else { return nil }
        guard let changed = HTTPDate(lastModified), let answered = HTTPDate(date) else {
            return false
        }
        return answered > changed
    }
}
