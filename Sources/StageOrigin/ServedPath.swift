import StageModel
import SystemPackage

/// Path below the served directory that a request names.
struct ServedPath: Equatable, Sendable {
    /// Decoded path components; empty for the served directory itself.
    var names: [String]
    /// Set if the path ends with a slash, like that of a directory.
    var hasTrailingSlash: Bool

    /// Decodes the path of a request; fails if no served file can have it.
    ///
    /// Each component is decoded once, after the path was split. It must not be empty, begin with a dot (which
    /// excludes `.` and `..`), or contain a slash or NUL.
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

    /// Returns whether files of this name are served.
    static func isServed(_ name: String) -> Bool {
        !name.isEmpty && name.utf8.first != UInt8(ascii: ".")
            && !name.utf8.contains { $0 == 0 || $0 == UInt8(ascii: "/") }
    }
}
