/// An entity tag (RFC 9110 §8.8.3).
struct EntityTag: Equatable, Sendable {
    /// The text between the quotes.
    var opaque: String
    /// Whether equal tags promise less than equal bytes.
    var isWeak = false

    /// Whether both tags are strong and the same: the bytes are equal.
    func matchesStrongly(_ other: EntityTag) -> Bool {
        !isWeak && !other.isWeak && opaque == other.opaque
    }

    /// Whether the tags are the same, weak or not.
    func matchesWeakly(_ other: EntityTag) -> Bool { opaque == other.opaque }
}

extension EntityTag: CustomStringConvertible {
    /// The tag as it stands in a field.
    var description: String { (isWeak ? "W/" : "") + "\"\(opaque)\"" }
}

/// The value of an `If-Match` or `If-None-Match` field: any tag, or one of those listed.
enum EntityTagCondition: Equatable, Sendable {
    case any
    case list([EntityTag])

    /// Reads the value of a field; one that cannot be understood lists nothing.
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

    /// Whether `predicate` holds for one of the tags; it does for any tag.
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
