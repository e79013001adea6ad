import Dispatch
import Foundation
import FoundationNetworking
import StageControl
import StageModel

extension URLSession {
    /// Adds the cookies of a response to the session's storage, if the configuration allows it.
    func keepCookies(of head: TransferResponse?, for task: URLSessionTask) {
        guard let head, let storage = rules.httpCookieStorage, let url = URL(string: head.url),
            rules.httpCookieAcceptPolicy != .never,
            task.originalRequest?.httpShouldHandleCookies ?? true
        else { return }
        // Read from the lines of the head: `HTTPURLResponse` joins them into one field, in which cookies cannot be separated.
        let cookies = head.cookieLines.compactMap { HTTPCookie(setCookie: $0, from: url, at: .now) }
        // Without a main document, no host is foreign: a redirect may lead through the hosts of a login.
        let page = task.originalRequest?.mainDocumentURL?.overHTTP
        for cookie in cookies where url.belongsToDomain(of: cookie) {
            let isOfPage = page?.belongsToDomain(of: cookie) ?? true
            if rules.httpCookieAcceptPolicy == .always || isOfPage { storage.setCookie(cookie) }
        }
    }

    /// Runs `body` on the queue that stores cookies, after those of earlier responses are stored.
    ///
    /// Foundation writes all cookies of a storage to disk for each one that it adds, and readers wait for that.
    func withCookies<Value: Sendable>(_ body: @escaping @Sendable () -> Value) async -> Value {
        await withCheckedContinuation { continuation in
            cookieQueue.async { continuation.resume(returning: body()) }
        }
    }

    /// Returns when the cookies of earlier responses are stored.
    func waitForCookies() async { await withCookies {} }

    /// Adds the cookies of a response as ``keepCookies(of:for:)`` does, without blocking a thread of the caller.
    func storeCookies(of head: TransferResponse, for task: URLSessionTask) async {
        guard !head.cookieLines.isEmpty else { return }
        await withCookies { [self] in keepCookies(of: head, for: task) }
    }

    /// Adds the cookies of a response later; ``waitForCookies()`` returns after that.
    func keepCookiesSoon(of head: TransferResponse, for task: URLSessionTask) {
        guard !head.cookieLines.isEmpty else { return }
        cookieQueue.async { [self] in keepCookies(of: head, for: task) }
    }
}

extension TransferResponse {
    /// The values of the `Set-Cookie` fields.
    fileprivate var cookieLines: [String] {
        headers.filter { $0.count == 2 && $0[0].lowercased() == "set-cookie" }.map { $0[1] }
    }
}

extension HTTPCookieStorage {
    /// Maximum size of a request's cookies in bytes.
    private static let mostBytes = 8 << 10

    /// Returns the cookies for a request (RFC 6265, section 5.4), as many as fit into its head: those of longer paths
    /// first, and of equal ones those that were set first.
    ///
    /// Foundation's `cookies(for:)` compares only hosts on Linux, and has no order.
    func cookiesToSend(to url: URL) -> [HTTPCookie] {
        var bytes = 0
        let found = (cookies(for: url) ?? []).filter {
            url.belongsToDomain(of: $0) && $0.allowsSending(to: url)
        }
        return found.sorted { $0.isSent(before: $1) }.filter { cookie in
            bytes += cookie.name.utf8.count + cookie.value.utf8.count + 3
            return bytes <= Self.mostBytes
        }
    }
}

extension URL {
    /// Returns whether the server that the daemon contacts for the URL belongs to the cookie's domain.
    fileprivate func belongsToDomain(of cookie: HTTPCookie) -> Bool {
        URLReference(absoluteString).origin.map { cookie.domainContains($0.host) } ?? false
    }
}

extension HTTPCookie {
    /// Returns whether a host is in the domain of the cookie (RFC 6265, section 5.1.3).
    ///
    /// A domain of one label, such as `com`, contains only that host.
    fileprivate func domainContains(_ host: String) -> Bool {
        let domain = domain.drop { $0 == "." }.lowercased()
        guard domain.contains(".") else { return host == domain }
        return host == domain || host.hasSuffix(".\(domain)")
    }

    /// Returns whether scheme, path and time allow the cookie to be sent, and a field can carry it.
    fileprivate func allowsSending(to url: URL) -> Bool {
        guard !isSecure || URLReference(url.absoluteString).schemeName == "https",
            expiresDate ?? .distantFuture > .now,
            !(name + value).utf8.contains(where: { $0 < 0x20 || $0 == 0x7F })
        else { return false }
        let asked = url.requestPath
        return asked == path || path == "/" || path.isEmpty
            || asked.hasPrefix(path.hasSuffix("/") ? path : path + "/")
    }

    /// Returns whether a request has the cookie before another one (RFC 6265, section 5.4).
    fileprivate func isSent(before other: HTTPCookie) -> Bool {
        let (length, otherLength) = (path.utf8.count, other.path.utf8.count)
        if length != otherLength { return length > otherLength }
        return (created, name) < (other.created, other.name)
    }
}
