import CCrypto
import Synchronization

extension PrivateKey {
    /// The prefix of the URI of an object in a PKCS #11 token (RFC 7512).
    package static let tokenScheme = "pkcs11:"

    /// Finds a private key in a PKCS #11 token, which makes the signatures: the key never leaves the token.
    ///
    /// Uses OpenSSL's `pkcs11` provider; OpenSSL's configuration names its module. The key type determines
    /// the scheme, as for keys in files. The provider stays loaded until the process ends.
    ///
    /// - Parameters:
    ///   - uri: The URI of the key (RFC 7512), such as `pkcs11:token=publisher;object=targets`, without a
    ///     PIN.
    ///   - pin: Called when the token needs its PIN; returns `nil` if there is none. The bytes are
    ///     overwritten after use.
    /// - Throws: ``KeyError`` if the URI is invalid or contains a PIN, if there is no provider, if it does
    ///   not match exactly one private key, or if the key type is not supported.
    package init(tokenURI uri: String, pin: @escaping () -> [UInt8]?) throws(KeyError) {
        try self.init(tokenURI: uri, fetching: "provider=pkcs11", pin: pin)
    }

    /// Finds a key like ``init(tokenURI:pin:)``, in OpenSSL stores with these `properties` (property(7)).
    ///
    /// Without properties, OpenSSL would first look for a file in the current directory whose name is the
    /// URI.
    package init(
        tokenURI uri: String,
        fetching properties: String?,
        pin: @escaping () -> [UInt8]?
    ) throws(KeyError) {
        try Self.check(uri)
        defer { ERR_clear_error() }
        let token = try TokenAccess(pin)
        let keys = unsafe try Self.privateKeys(at: uri, fetching: properties, in: token)
        guard let key = unsafe keys.first else {
            if token.isPINRefused { throw .locked }
            let reason =
                token.isPINGiven
                ? "the PIN is wrong, or no key fits the URI" : "no key fits the URI"
            throw .token(reason: lastReason() ?? reason)
        }
        guard unsafe keys.count == 1 else {
            for index in unsafe keys.indices { unsafe EVP_PKEY_free(keys[index]) }
            throw .ambiguousToken(count: unsafe keys.count)
        }
        unsafe try self.init(taking: key, in: token)
    }

    private static func check(_ uri: String) throws(KeyError) {
        guard uri.hasPrefix(tokenScheme), !uri.utf8.contains(0) else {
            throw .tokenURI(expected: "a URI that begins with '\(tokenScheme)' (RFC 7512)")
        }
        // All users of a machine can read the arguments of a process.
        guard !uri.lowercased().contains("pin-value") else {
            throw .tokenURI(
                expected:
                    "a URI without 'pin-value': the PIN is asked for, or read from a file descriptor"
            )
        }
    }

    /// Returns the private keys that a URI matches; the caller owns them.
    private static func privateKeys(
        at uri: String,
        fetching properties: String?,
        in token: TokenAccess
    ) throws(KeyError) -> [OpaquePointer] {
        token.answerPINRequests()
        let store = unsafe OSSL_STORE_open_ex(
            uri,
            token.context,
            properties,
            UI_get_default_method(),
            nil,
            nil,
            nil,
            nil
        )
        guard let store = unsafe store else {
            if token.isPINRefused { throw .locked }
            throw .token(reason: lastReason() ?? "no reason is known")
        }
        defer { unsafe OSSL_STORE_close(store) }
        // Certificates and public keys that also match are skipped.
        unsafe OSSL_STORE_expect(store, OSSL_STORE_INFO_PKEY)
        var keys: [OpaquePointer] = unsafe []
        while unsafe OSSL_STORE_eof(store) == 0 {
            guard let object = unsafe OSSL_STORE_load(store) else {
                if unsafe OSSL_STORE_error(store) == 1 { break }
                continue
            }
            defer { unsafe OSSL_STORE_INFO_free(object) }
            let key = unsafe OSSL_STORE_INFO_get1_PKEY(object)
            if let key = unsafe key { unsafe keys.append(key) }
        }
        return unsafe keys
    }
}

/// Access to keys in tokens, which answers a token's request for its PIN.
///
/// A token may request the PIN when a key is looked up, and again for each signature
/// (`CKA_ALWAYS_AUTHENTICATE`). OpenSSL does not say for which key: use keys in tokens from one thread at a
/// time.
@safe final class TokenAccess: @unchecked Sendable {
    /// The library context with the PKCS #11 provider.
    ///
    /// Not the default context: SoftHSM itself uses OpenSSL with the default context, and would deadlock if
    /// that used the token's algorithms.
    let context: OpaquePointer
    private let pin: () -> [UInt8]?
    /// Indicates whether a PIN was supplied when the token requested it.
    private(set) var isPINGiven = false
    /// Indicates whether no PIN was supplied.
    private(set) var isPINRefused = false

    /// The instance whose key is in use; it answers the requests of its token.
    private static let current = Mutex<TokenAccess?>(nil)

    /// - Throws: ``KeyError/noTokenProvider(reason:)`` if OpenSSL cannot load the provider.
    init(_ pin: @escaping () -> [UInt8]?) throws(KeyError) {
        guard let context = unsafe LibraryContext.forTokens else { throw .failed }
        guard unsafe OSSL_PROVIDER_try_load(context, "pkcs11", 1) != nil else {
            throw .noTokenProvider(reason: lastReason() ?? "no reason is known")
        }
        unsafe self.context = context
        self.pin = pin
    }

    /// Makes this instance answer PIN requests from now on.
    func answerPINRequests() {
        Self.current.withLock { $0 = self }
    }

    /// Writes the PIN to a buffer and returns its length, or -1 if there is none.
    static func answer(_ buffer: UnsafeMutableBufferPointer<CChar>) -> CInt {
        guard let access = current.withLock(\.self) else { return -1 }
        guard var secret = access.pin(), secret.count <= buffer.count else {
            access.isPINRefused = true
            return -1
        }
        defer { secret.wipe() }
        access.isPINGiven = true
        for (index, byte) in secret.enumerated() {
            unsafe buffer[index] = CChar(bitPattern: byte)
        }
        return CInt(secret.count)
    }
}

/// Library contexts of OpenSSL, which live as long as the process.
package enum LibraryContext {
    /// A context with OpenSSL's configuration and its default provider; `nil` if memory is exhausted.
    ///
    /// Also replaces OpenSSL's default user interface, through which a provider would ask for a PIN on the
    /// terminal.
    nonisolated(unsafe) package static let forTokens: OpaquePointer? = {
        // Loads the texts of OpenSSL's errors, too.
        _ = OPENSSL_init_crypto(UInt64(OPENSSL_INIT_LOAD_CRYPTO_STRINGS), nil)
        let method = unsafe UI_UTIL_wrap_read_pem_callback(
            { buffer, size, _, _ in
                unsafe TokenAccess.answer(
                    UnsafeMutableBufferPointer(start: buffer, count: Int(size))
                )
            },
            0
        )
        guard let method = unsafe method, let context = unsafe OSSL_LIB_CTX_new() else {
            return nil
        }
        unsafe UI_set_default_method(method)
        if let file = unsafe CONF_get1_default_config_file() {
            // The file may name the token's module; otherwise the provider finds one itself.
            _ = unsafe OSSL_LIB_CTX_load_config(context, file)
            unsafe CRYPTO_free(file, nil, 0)
        }
        ERR_clear_error()
        guard unsafe OSSL_PROVIDER_load(context, "default") != nil else { return nil }
        return unsafe context
    }()
}

/// Returns the message of the last OpenSSL error of this thread.
private func lastReason() -> String? {
    var text: UnsafePointer<CChar>?
    var flags: CInt = 0
    let code = unsafe ERR_peek_last_error_data(&text, &flags)
    guard code != 0 else { return nil }
    let reason = unsafe ERR_reason_error_string(code).map { unsafe String(cString: $0) }
    var parts = [reason ?? "error \(code)"]
    if flags & ERR_TXT_STRING != 0, let text = unsafe text {
        let detail = unsafe String(cString: text)
        if !detail.isEmpty { parts.append(detail) }
    }
    return parts.joined(separator: ", ")
}
