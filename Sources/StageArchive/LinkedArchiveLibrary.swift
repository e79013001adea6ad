import CArchive

/// libarchive as it is linked with this program.
package enum LinkedArchiveLibrary {
    /// The version.
    package static var version: String {
        let number = archive_version_number()
        return "\(number / 1_000_000).\(number / 1000 % 1000).\(number % 1000)"
    }
}
