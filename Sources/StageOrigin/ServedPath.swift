import StageModel
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
            guard let name = Substring(part).percentDecoded, Self.isServed(name) else { return nil }
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
}
