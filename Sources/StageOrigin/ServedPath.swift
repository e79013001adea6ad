import SystemPackage

/// The place below the served directory that a request names.
struct ServedPath: Equatable, Sendable {
    /// The names on the way, decoded; empty for the served directory itself.
    var names: [String]
    /// Whether the path ends with a slash, as that of a directory does.
    var hasTrailingSlash: Bool

    /// Decodes the path of a request, or returns `nil` if it can name nothing that is served.
    ///
    /// Each name is decoded once, after the path was split, and must then be a plain one: not hidden
    /// (which leaves out `.` and `..`), not empty, and without a slash or a null byte.
    init?(_ path: String) {
        guard path.utf8.first == UInt8(ascii: "/") else { return nil }
        var parts = path.utf8.dropFirst()
            .split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
        hasTrailingSlash = parts.last?.isEmpty ?? true
        if hasTrailingSlash { parts = parts.dropLast() }
        names = []
        for part in parts {
            guard let name = Self.decoded(part), Self.isServed(name) else { return nil }
            names.append(name)
        }
    }

    /// The path relative to the served directory.
    var filePath: FilePath { FilePath(names.isEmpty ? "." : names.joined(separator: "/")) }

    /// Whether a file of this name is served at all.
    static func isServed(_ name: String) -> Bool {
        !name.isEmpty && name.utf8.first != UInt8(ascii: ".")
            && !name.utf8.contains { $0 == 0 || $0 == UInt8(ascii: "/") }
    }

    /// Encodes a name for use as one segment of a URL (RFC 3986 §2.3).
    static func encoded(_ name: String) -> String {
        var text = ""
        for byte in name.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."),
                UInt8(ascii: "_"), UInt8(ascii: "~"):
                text.unicodeScalars.append(Unicode.Scalar(byte))
            default:
                let digits = String(byte, radix: 16, uppercase: true)
                text += byte < 16 ? "%0\(digits)" : "%\(digits)"
            }
        }
        return text
    }

    private static func decoded(_ part: Substring.UTF8View.SubSequence) -> String? {
        var bytes: [UInt8] = []
        var rest = part
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard let high = rest.popFirst().flatMap(digit),
                let low = rest.popFirst().flatMap(digit)
            else { return nil }
            bytes.append(high << 4 | low)
        }
        return String(validating: bytes, as: UTF8.self)
    }

    private static func digit(_ byte: UInt8) -> UInt8? {
        Character(Unicode.Scalar(byte)).hexDigitValue.map { UInt8($0) }
    }
}
