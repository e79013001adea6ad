import CCurl

/// libcurl as it is linked with this program.
package enum LinkedTransferLibrary {
    /// The version.
    package static var version: String {
        guard let text = unsafe curl_version() else { return "unknown" }
        // "libcurl/8.5.0 OpenSSL/3.0.13 ..."
        let words = unsafe String(cString: text).split(separator: " ")
        return words.first?.split(separator: "/").last.map(String.init) ?? "unknown"
    }
}
