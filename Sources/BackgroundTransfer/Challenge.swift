import Foundation
import FoundationNetworking
import Synchronization

/// What a server says when it wants to know who asks: the value of a `WWW-Authenticate` field (RFC 9110,
/// section 11.6.1).
struct Challenge: Equatable {
    /// The schemes on offer, in lower case and in order.
    let schemes: [String]
    /// The realm of the first scheme that can be answered, or of the first.
    let realm: String?
    /// Where the question comes from.
    let url: String

    /// Reads a field's value.
    init(_ value: String, url: String) {
        self.url = url
        var schemes: [String] = []
        var realms: [String: String] = [:]
        for part in Self.parts(value) {
            let equals = part.firstIndex(of: "=")
            var words = part[..<(equals ?? part.endIndex)].split(separator: " ")
            // 'Basic realm="x"' begins a challenge, 'charset="UTF-8"' goes on with one.
            if equals == nil || words.count > 1, let scheme = words.first {
                schemes.append(scheme.lowercased())
                words.removeFirst()
            }
            guard let equals, let scheme = schemes.last, words.last?.lowercased() == "realm" else {
                continue
            }
            realms[scheme] = Self.unquoted(part[part.index(after: equals)...])
        }
        self.schemes = schemes
        realm = realms[schemes.contains("basic") ? "basic" : schemes.first ?? ""]
    }

    /// The value of the `Authorization` field that an application's answer comes to; `nil` for none.
    func answer(
        _ disposition: URLSession.AuthChallengeDisposition,
        _ credential: URLCredential?
    ) -> String? {
        guard disposition == .useCredential, schemes.contains("basic"),
            let user = credential?.user, let password = credential?.password
        else { return nil }
        return "Basic \(Data("\(user):\(password)".utf8).base64EncodedString())"
    }

    /// Foundation's name of the scheme that is asked about.
    var method: String {
        if schemes.contains("basic") { return NSURLAuthenticationMethodHTTPBasic }
        switch schemes.first {
        case "digest": return NSURLAuthenticationMethodHTTPDigest
        case let scheme?: return scheme
        case nil: return NSURLAuthenticationMethodDefault
        }
    }

    /// Cuts a list at the commas that are not within quotes.
    private static func parts(_ value: String) -> [Substring] {
        var isQuoted = false
        var isEscaped = false
        return value.split { character in
            defer { isEscaped = isQuoted && character == "\\" && !isEscaped }
            if character == "\"" && !isEscaped { isQuoted.toggle() }
            return character == "," && !isQuoted
        }
        .map { $0.drop { $0 == " " } }
    }

    private static func unquoted(_ value: Substring) -> String {
        let text = value.drop { $0 == " " }
        guard text.first == "\"" else { return String(text.prefix { $0 != " " }) }
        var result = ""
        var isEscaped = false
        for character in text.dropFirst() {
            if !isEscaped && character == "\"" { break }
            isEscaped = !isEscaped && character == "\\"
            if !isEscaped { result.append(character) }
        }
        return result
    }
}

extension URLAuthenticationChallenge {
    /// Makes what Foundation has for a challenge.
    convenience init(_ challenge: Challenge, failures: Int) {
        let url = URLComponents(string: challenge.url)
        let isSecure = url?.scheme?.lowercased() != "http"
        self.init(
            protectionSpace: URLProtectionSpace(
                host: url?.host ?? "",
                port: url?.port ?? (isSecure ? 443 : 80),
                protocol: isSecure ? NSURLProtectionSpaceHTTPS : NSURLProtectionSpaceHTTP,
                realm: challenge.realm,
                authenticationMethod: challenge.method
            ),
            proposedCredential: nil,
            previousFailureCount: failures,
            failureResponse: nil,
            error: nil,
            sender: SilentSender()
        )
    }
}

/// Nobody to answer to but by the completion handler.
private final class SilentSender: NSObject, URLAuthenticationChallengeSender {
    func use(_ credential: URLCredential, for challenge: URLAuthenticationChallenge) {}
    func continueWithoutCredential(for challenge: URLAuthenticationChallenge) {}
    func cancel(_ challenge: URLAuthenticationChallenge) {}
    func performDefaultHandling(for challenge: URLAuthenticationChallenge) {}
    func rejectProtectionSpaceAndContinue(with challenge: URLAuthenticationChallenge) {}
}

/// Something that is done once, however often it is asked for.
final class Once: Sendable {
    private let wasDone = Atomic(false)

    /// Returns whether this is the first time.
    func isFirst() -> Bool { !wasDone.exchange(true, ordering: .acquiringAndReleasing) }
}
