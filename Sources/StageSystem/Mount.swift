package import SystemPackage

/// A mounted file system, as `/proc/self/mountinfo` lists it (proc(5)).
package struct Mount: Equatable, Sendable {
    /// The directory that it is mounted at.
    package var point: FilePath
    /// The options of the mount, such as `noatime`.
    package var options: Set<String>

    /// Returns the mount that a path is on, or `nil` if the kernel does not tell.
    ///
    /// - Parameter path: A path that exists; links in it are followed.
    /// - Returns: The mount, by its directory and options.
    package static func holding(_ path: FilePath) -> Mount? {
        guard let path = path.resolved,
            // Without /proc nothing is known.
            let bytes = try? File.open(reading: "/proc/self/mountinfo").readAll(limit: 4 << 20)
        else { return nil }
        return holding(path, in: String(decoding: bytes, as: UTF8.self))
    }

    /// Returns the mount that a path without links is on, by the text of `mountinfo`.
    ///
    /// If several file systems are mounted at one directory, the last one counts, since it hides the others.
    package static func holding(_ path: FilePath, in table: String) -> Mount? {
        var found: Mount?
        for line in table.split(separator: "\n") {
            let fields = line.split(separator: " ")
            guard fields.count > 5 else { continue }
            let point = FilePath(unescaped(fields[4]))
            guard path.starts(with: point),
                point.components.count >= found?.point.components.count ?? 0
            else { continue }
            let options = fields[5].split(separator: ",").map(String.init)
            found = Mount(point: point, options: Set(options))
        }
        return found
    }

    /// Replaces the octal escapes of spaces, tabs, line ends and backslashes.
    static func unescaped(_ text: Substring) -> String {
        var bytes: [UInt8] = []
        var rest = Array(text.utf8)[...]
        while let byte = rest.popFirst() {
            let digits = rest.prefix(3)
            guard byte == UInt8(ascii: "\\"), digits.count == 3,
                let value = UInt8(String(decoding: digits, as: UTF8.self), radix: 8)
            else {
                bytes.append(byte)
                continue
            }
            bytes.append(value)
            rest = rest.dropFirst(3)
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
