/// What the content of a file is called in a `Content-Type` field, by the end of its name.
enum MediaType {
    /// Returns the media type of a file with this name, `application/octet-stream` if it has no
    /// ending that is known.
    static func of(fileNamed name: String) -> String {
        guard let dot = name.lastIndex(of: ".") else { return unknown }
        return known[name[name.index(after: dot)...].lowercased()] ?? unknown
    }

    private static let unknown = "application/octet-stream"
    private static let known = [
        "bz2": "application/x-bzip2",
        "gz": "application/gzip",
        "htm": "text/html; charset=utf-8",
        "html": "text/html; charset=utf-8",
        "jpeg": "image/jpeg",
        "jpg": "image/jpeg",
        "json": "application/json",
        "lz4": "application/x-lz4",
        "png": "image/png",
        "svg": "image/svg+xml",
        "tar": "application/x-tar",
        "tgz": "application/gzip",
        "txt": "text/plain; charset=utf-8",
        "xz": "application/x-xz",
        "zip": "application/zip",
        "zst": "application/zstd",
    ]
}
