/// The syntax of absolute paths in registrations and configuration files.
enum AbsolutePath {
    /// Returns the path if it is valid.
    ///
    /// - Throws: ``ValueError`` if the path is relative or too long, or has control or bidirectional characters.
    static func checked(_ text: String) throws(ValueError) -> String {
        guard text.utf8.first == UInt8(ascii: "/"), text.utf8.count <= ManifestLimits.pathLength,
            !text.unicodeScalars.contains(where: \.isUnsafeForDisplay)
        else {
            throw ValueError(
                expected: "an absolute path of at most \(ManifestLimits.pathLength) bytes",
                text: text
            )
        }
        return text
    }
}
