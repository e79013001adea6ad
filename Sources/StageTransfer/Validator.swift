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
    init?(_ head: ResponseHead) {
        guard ValidatorDefect(head) == nil else { return nil }
        if let tag = head.entityTag {
            self = .entityTag(tag)
        } else if let modified = head.lastModified {
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

    /// Returns whether a date consists of printable ASCII, so that it can be sent back unchanged; the date parser accepts
    /// any weekday.
    static func isPrintable(_ date: String) -> Bool {
        date.utf8.allSatisfy { (0x20...0x7E).contains($0) }
    }
}
