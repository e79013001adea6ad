import StageModel

/// Strong validator of a resource: distinguishes its versions byte for byte (RFC 9110, section 8.8.1).
enum Validator: Hashable, Sendable, Codable {
    /// Strong entity tag, including its quotation marks.
    case entityTag(String)
    /// Modification date that counts as strong, as the server wrote it.
    case lastModified(String)

    /// Value for an `If-Range` field.
    var text: String {
        switch self {
        case .entityTag(let text), .lastModified(let text): text
        }
    }

    /// Extracts the strong validator of a response; `nil` if it has none.
    ///
    /// A date counts only if there is no entity tag and the response is dated at least a second later (RFC 9110,
    /// sections 8.8.2.2 and 13.1.5). An entity tag of content that changed in the second of the response, or later,
    /// does not count either: servers derive tags from size and second.
    init?(_ head: ResponseHead) {
        if let tag = head.entityTag {
            guard Self.isStrong(tag), head.isOlderThanAnswer ?? true else { return nil }
            self = .entityTag(tag)
        } else if let modified = head.lastModified, Self.isPrintable(modified),
            head.isOlderThanAnswer == true
        {
            self = .lastModified(modified)
        } else {
            return nil
        }
    }

    /// Returns whether a response is of this version; `nil` if it does not say so.
    func isConfirmed(by head: ResponseHead) -> Bool? {
        switch self {
        case .entityTag(let tag): head.entityTag.map { $0 == tag }
        case .lastModified(let date): head.lastModified.map { $0 == date }
        }
    }

    /// Returns the strong entity tag of a response; `nil` if it has none.
    static func entityTag(of head: ResponseHead) -> String? {
        guard case .entityTag(let tag) = Validator(head) else { return nil }
        return tag
    }

    /// Returns whether the text is a strong entity tag that can be sent back unchanged.
    static func isStrong(_ tag: String) -> Bool {
        let bytes = tag.utf8
        return bytes.count >= 2 && bytes.first == UInt8(ascii: "\"")
            && bytes.last == UInt8(ascii: "\"")
            && bytes.dropFirst().dropLast().allSatisfy { (0x21...0x7E).contains($0) && $0 != 0x22 }
    }

    /// Returns whether a date can be sent back unchanged: its weekday is not checked otherwise.
    static func isPrintable(_ date: String) -> Bool {
        date.utf8.allSatisfy { (0x20...0x7E).contains($0) }
    }
}

extension ResponseHead {
    /// `true` if the content last changed before the second of the response; `nil` if a date is missing.
    fileprivate var isOlderThanAnswer: Bool? {
        guard let lastModified, let date else { return nil }
        guard let changed = HTTPDate(lastModified, readAt: .now),
            let answered = HTTPDate(date, readAt: .now)
        else { return false }
        return answered > changed
    }
}
