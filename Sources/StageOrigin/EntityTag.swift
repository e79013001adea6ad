/// Entity tag (RFC 9110 §8.8.3).
struct EntityTag: Equatable, Sendable {
    /// Text between the quotes.
    var opaque: String
    /// Set for a weak validator.
    var isWeak = false

    /// Returns whether both tags are strong and equal.
    func matchesStrongly(_ other: EntityTag) -> Bool {
        !isWeak && !other.isWeak && opaque == other.opaque
    }

    /// Returns whether the tags are equal, weak or strong.
    func matchesWeakly(_ other: EntityTag) -> Bool { opaque == other.opaque }
}

extension EntityTag: CustomStringConvertible {
    /// The tag as in a header field.
    var description: String { (isWeak ? "W/" : "") + "\"\(opaque)\"" }
}

/// Value of an `If-Match` or `If-None-Match` field: any tag, or a list of tags.
enum EntityTagCondition: Equatable, Sendable {
    case any
    case list([EntityTag])

    /// Parses a field; an invalid one yields an empty list.
    init(_ field: String) {
        var rest = field.utf8[...]
        var tags: [EntityTag] = []
        Self.skipSeparators(&rest)
        if rest.elementsEqual("*".utf8) {
            self = .any
            return
        }
        while !rest.isEmpty {
            guard let tag = Self.takeTag(&rest) else {
                self = .list([])
                return
            }
            tags.append(tag)
            Self.skipSeparators(&rest)
        }
        self = .list(tags)
    }

    /// Returns whether `predicate` returns `true` for one of the tags; always `true` for any tag.
    func contains(where predicate: (EntityTag) -> Bool) -> Bool {
        switch self {
        case .any: true
        case .list(let tags): tags.contains(where: predicate)
        }
    }

    private static func skipSeparators(_ rest: inout Substring.UTF8View) {
        rest = rest.drop { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") || $0 == comma }
    }

    private static func takeTag(_ rest: inout Substring.UTF8View) -> EntityTag? {
        let isWeak = rest.starts(with: "W/".utf8)
        if isWeak { rest = rest.dropFirst(2) }
        guard rest.first == quote else { return nil }
        rest = rest.dropFirst()
        guard let end = rest.firstIndex(of: quote) else { return nil }
        let opaque = String(decoding: rest[..<end], as: UTF8.self)
        rest = rest[end...].dropFirst()
        return EntityTag(opaque: opaque, isWeak: isWeak)
    }

    private static let comma = UInt8(ascii: ",")
    private static let quote = UInt8(ascii: "\"")
}
