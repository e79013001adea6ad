package import SystemPackage

/// The file mode creation mask (umask(2)) of this process.
package enum FileCreationMask {
    /// Returns the mask, or `nil` if `/proc` does not show it.
    ///
    /// The system call reads the mask only by changing it, which would affect files that other threads create meanwhile.
    package static func current() -> FilePermissions? {
        guard let file = try? File.open(readingRegular: "/proc/self/status"),
            // The kernel makes no longer file.
            let bytes = try? file.readAll(limit: 64 << 10)
        else { return nil }
        for line in String(decoding: bytes, as: UTF8.self).split(separator: "\n") {
            let fields = line.split(whereSeparator: \.isWhitespace)
            guard fields.first == "Umask:", fields.count == 2 else { continue }
            return UInt32(fields[1], radix: 8).map { FilePermissions(rawValue: $0) }
        }
        return nil
    }

    /// Returns the permission bits of a new file that a program makes for its user: `0666` without those of the mask; `nil` if the
    /// mask is not known.
    package static func modeOfNewFile() -> FilePermissions? {
        current().map { FilePermissions(rawValue: 0o666).subtracting($0) }
    }
}
