/// Media type of a file for the `Content-Type` field, derived from its name.
enum MediaType {
    /// Returns the media type for a file name; `application/octet-stream` for an unknown extension.
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
