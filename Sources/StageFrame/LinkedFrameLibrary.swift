import CZstd

/// libzstd as it is linked with this program.
package enum LinkedFrameLibrary {
    /// The version.
    package static var version: String {
        let number = ZSTD_versionNumber()
        return "\(number / 10_000).\(number / 100 % 100).\(number % 100)"
    }
}
