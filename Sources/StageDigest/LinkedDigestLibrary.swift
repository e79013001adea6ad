import CCrypto

/// OpenSSL's libcrypto as it is linked with this program.
package enum LinkedDigestLibrary {
    /// The version.
    package static var version: String {
        guard let text = unsafe OpenSSL_version(OPENSSL_FULL_VERSION_STRING) else {
            return "unknown"
        }
        return unsafe String(cString: text)
    }
}
