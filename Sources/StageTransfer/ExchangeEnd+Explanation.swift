import CCurl
import Glibc
import StageModel
import SystemPackage

extension ExchangeEnd {
    /// Reason why the exchange failed, as a sentence fragment for people that names host and port.
    ///
    /// libcurl's message, which is in `detail`, remains where the result code says less than the message.
    var explanation: String {
        guard let connection else { return detail }
        // libcurl's message contains the setting, with a password that it may have.
        if isProxyInvalid {
            return
                "the configured proxy is not valid: expected 'http://HOST:PORT', also with https, "
                + "socks4, socks4a, socks5 or socks5h"
        }
        switch code {
        case CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY:
            return "the name of \(peer) cannot be resolved"
        case CURLE_OPERATION_TIMEDOUT: return timeout
        case CURLE_PROXY:
            return "\(peer) cannot connect to \(connection.server): \(reasonOfSOCKS)"
        case CURLE_COULDNT_CONNECT: return refusal
        case CURLE_SSL_CONNECT_ERROR: return handshakeFailure
        case CURLE_GOT_NOTHING: return "connection closed by \(peer) without a response"
        case CURLE_PARTIAL_FILE:
            let missing = connection.missing.map { " with \($0.quantity(of: "byte")) missing" }
            return "connection closed by \(peer)" + (missing ?? " before the end of the response")
        case CURLE_SEND_ERROR, CURLE_RECV_ERROR: return interruption
        case CURLE_ABORTED_BY_CALLBACK where !connection.address.isEmpty:
            return "\(connection.server) has the address '\(connection.address)', "
                + "which is not of this machine"
        default: return detail
        }
    }

    /// Fault of the certificate of the server or of the proxy, and its explanation.
    var certificateFault: (fault: TransferError.CertificateFault, explanation: String) {
        guard code != CURLE_SSL_CACERT_BADFILE else {
            return (.unloadableAuthorities, "the trusted authorities cannot be loaded: \(detail)")
        }
        let fault = TransferError.CertificateFault(self)
        let explanation = "the certificate of \(peer) \(fault)"
        return (fault, fault == .unverified ? "\(explanation): \(detail)" : explanation)
    }
}

extension ExchangeEnd {
    /// `true` if the connection failed since this machine has no route to the address.
    var hasNoRoute: Bool {
        [ENETUNREACH, ENETDOWN, EHOSTUNREACH].contains(connection?.systemError ?? 0)
    }

    /// `true` if the proxy, or its setting, is at fault, and not the server or the way from the proxy to it.
    var isFaultOfProxy: Bool {
        if isProxyInvalid { return true }
        return isAtProxy && code != CURLE_PROXY && proxyStatus < 500
    }

    /// `true` if the failed connection was one to the proxy.
    private var isAtProxy: Bool {
        guard let connection, let proxy = connection.proxy else { return false }
        if code == CURLE_COULDNT_RESOLVE_PROXY || code == CURLE_PROXY { return true }
        // Through the tunnel, the server itself responds.
        if proxyStatus / 100 == 2 { return false }
        if proxyStatus != 0 { return true }
        if connection.port != 0 {
            return connection.port == proxy.port
                && (connection.port != connection.serverPort || connection.address == proxy.host)
        }
        // libcurl decides by CURLOPT_NOPROXY; only its message tells.
        return detail.contains(" \(proxy.host.withoutBrackets) ")
    }

    /// `true` if libcurl cannot parse the setting of the proxy.
    private var isProxyInvalid: Bool {
        switch code {
        case CURLE_COULDNT_RESOLVE_PROXY: connection?.proxy == nil
        case CURLE_COULDNT_CONNECT: detail.hasPrefix("Unsupported proxy ")
        default: false
        }
    }

    /// Host and port of the other side of the connection, for people.
    private var peer: String {
        guard isAtProxy, let proxy = connection?.proxy else { return connection?.server ?? "" }
        return "the proxy \(proxy.host):\(proxy.port)"
    }

    /// `true` if a proxy has not yet responded to the request for a tunnel.
    private var awaitsTunnel: Bool {
        isAtProxy && connection?.isEncrypted == true && wasRequestSent && proxyStatus == 0
    }

    private var timeout: String {
        guard let connection else { return detail }
        let limit = "within \(connection.timeout.inWords)"
        if !connection.wasNameResolved { return "the name of \(peer) was not resolved \(limit)" }
        if connection.port == 0 { return "no connection to \(peer) \(limit)" }
        if awaitsTunnel { return "\(peer) did not connect to \(connection.server) \(limit)" }
        return "no end of the TLS handshake with \(peer) \(limit)"
    }

    private var refusal: String {
        guard let connection else { return detail }
        return switch connection.systemError {
        case ECONNREFUSED: "connection refused by \(peer)"
        case ECONNRESET, EPIPE: "connection reset by \(peer)"
        case ENETUNREACH, ENETDOWN: "the network of \(peer) cannot be reached from this machine"
        case EHOSTUNREACH, EHOSTDOWN: "no route to \(peer)"
        case EADDRNOTAVAIL: "this machine has no free address for a connection to \(peer)"
        case EACCES, EPERM: "a rule of this machine forbids connections to \(peer)"
        case ETIMEDOUT: "no connection to \(peer) within the time that the system allows"
        case EINVAL where isPeerLinkLocal:
            "no connection to \(peer): a link-local address needs a network interface; use another address or a "
                + "host name"
        case 0: "no connection to \(peer): \(detail)"
        case let number: "no connection to \(peer): \(Errno(rawValue: number))"
        }
    }

    /// `true` if the address of the other side is in fe80::/10 (RFC 4291, section 2.5.6).
    private var isPeerLinkLocal: Bool {
        let host = isAtProxy ? connection?.proxy?.host : connection?.server
        let address = Array((host ?? "").lowercased().utf8)
        return address.count > 5 && address.starts(with: Array("[fe".utf8))
            && Array("89ab".utf8).contains(address[3]) && address[4] != UInt8(ascii: ":")
            && address[5] == UInt8(ascii: ":")
    }

    private var handshakeFailure: String {
        if isReset { return "connection reset by \(peer) during the TLS handshake" }
        if isCutShort { return "connection closed by \(peer) during the TLS handshake" }
        if detail.contains("wrong version number") { return "\(peer) responded without TLS" }
        // "OpenSSL/3.0.19: error:0A00042E:SSL routines::tlsv1 alert protocol version"
        let parts = detail.split(separator: "::")
        let reason = parts.count > 1 ? parts.last.map { String($0) } ?? detail : detail
        let words = Self.alerts.first { reason.contains($0.alert) }?.words
        return "the TLS handshake with \(peer) failed: \(words ?? reason)"
    }

    /// OpenSSL's words for alerts (RFC 8446, section 6.2) and their meaning for people.
    private static let alerts: [(alert: String, words: String)] = [
        (
            "alert handshake failure",
            "the other side accepts none of the offered ciphers, or requires a client certificate"
        ),
        ("alert protocol version", "the other side has no TLS version that this machine allows"),
        ("unsupported protocol", "the other side has no TLS version that this machine allows"),
        ("unrecognized name", "the other side has no certificate for this name"),
    ]

    /// Reason that a SOCKS proxy gives (RFC 1928, sections 3 and 6), or libcurl's message.
    private var reasonOfSOCKS: String {
        if detail.hasPrefix("No authentication method was acceptable") {
            return "it requires credentials"
        }
        guard detail.hasPrefix("Can't complete SOCKS5 connection"), detail.hasSuffix(")") else {
            return detail
        }
        return switch detail.dropLast().split(separator: "(").last ?? "" {
        case "1": "it gives no reason"
        case "2": "its rules forbid that"
        case "3": "it cannot reach the network"
        case "4": "it cannot reach the host"
        case "5": "the host refuses connections"
        case "6": "the host does not respond"
        default: detail
        }
    }

    private var interruption: String {
        guard let connection else { return detail }
        if connection.systemError == EADDRNOTAVAIL {
            return "this machine has lost the address of its connection to \(peer)"
        }
        if proxyStatus >= 300 {
            let isRefusal = proxyStatus < 500
            return "\(peer) \(isRefusal ? "refused a connection" : "cannot connect") to "
                + "\(connection.server) (status \(proxyStatus))"
        }
        if awaitsTunnel {
            return "connection \(isReset ? "reset" : "closed") by \(peer) before it connected to "
                + connection.server
        }
        if isReset { return "connection reset by \(peer)" }
        if isChunkingMalformed { return "\(peer) sent a malformed chunked response" }
        if detail.contains("alert certificate required") {
            return "a client certificate is required by \(peer)"
        }
        if connection.systemError == ETIMEDOUT { return "\(peer) no longer responds" }
        if isCutShort { return "connection closed by \(peer) before the end of the response" }
        return detail
    }

    private var isReset: Bool {
        [ECONNRESET, EPIPE].contains(connection?.systemError) || detail.contains("reset by peer")
    }

    /// `true` if the framing of a chunked response is invalid (RFC 9112, section 7.1), by the messages of libcurl 7 and 8.
    private var isChunkingMalformed: Bool {
        detail.hasSuffix("in chunked-encoding") || detail.hasPrefix("chunk hex-length ")
            || detail.hasPrefix("invalid chunk size")
    }

    /// `true` if the connection ended without the notice that TLS requires.
    private var isCutShort: Bool {
        detail.contains("unexpected eof") || detail.contains("SSL_ERROR_SYSCALL")
    }
}

extension TransferError.CertificateFault {
    /// Classifies the fault by OpenSSL's verification result (X509_STORE_CTX_get_error(3)); libcurl compares names
    /// itself, and tells only by its message.
    fileprivate init(_ end: ExchangeEnd) {
        switch end.certificate {
        case 9: self = .notYetValid
        case 10: self = .expired
        case 2, 18, 19, 20, 21: self = .unknownAuthority
        case 62, 64: self = .otherHost
        // libcurl looks at the name before it asks OpenSSL for the result.
        case 0, 1: self = end.detail.contains("match") ? .otherHost : .unverified
        default: self = .unverified
        }
    }
}

extension String {
    /// The address in an IPv6 literal, or the text itself.
    fileprivate var withoutBrackets: String {
        hasPrefix("[") && hasSuffix("]") ? String(dropFirst().dropLast()) : self
    }
}
