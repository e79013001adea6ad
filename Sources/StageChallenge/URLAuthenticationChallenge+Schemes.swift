import Foundation
package import FoundationNetworking

extension URLProtectionSpace {
    /// Creates the protection space of a server that asks for credentials.
    ///
    /// Its method is `Basic` if the server offers that scheme, or else the first one.
    ///
    /// - Parameters:
    ///   - host: The host of the server.
    ///   - port: The port of the server.
    ///   - isSecure: Pass `true` if the connection is encrypted.
    ///   - realm: The realm of the challenge, if it has one.
    ///   - schemes: The offered authentication schemes, in lower case and in order.
    package convenience init(
        host: String,
        port: Int,
        isSecure: Bool,
        realm: String?,
        schemes: [String]
    ) {
        self.init(
            host: host,
            port: port,
            protocol: isSecure ? NSURLProtectionSpaceHTTPS : NSURLProtectionSpaceHTTP,
            realm: realm,
            authenticationMethod: URLProtectionSpace.method(of: schemes)
        )
    }

    private static func method(of schemes: [String]) -> String {
        if schemes.contains("basic") { return NSURLAuthenticationMethodHTTPBasic }
        return switch schemes.first {
        case "digest": NSURLAuthenticationMethodHTTPDigest
        case let scheme?: scheme
        case nil: NSURLAuthenticationMethodDefault
        }
    }
}

extension URLAuthenticationChallenge {
    /// Creates a challenge of a server; calls of its sender have no effect.
    ///
    /// - Parameters:
    ///   - space: The protection space of the server.
    ///   - proposed: The credential that the delegate may accept, if there is one.
    ///   - failures: The number of answers that the server has refused.
    package convenience init(
        _ space: URLProtectionSpace,
        proposed: URLCredential? = nil,
        failures: Int = 0
    ) {
        self.init(
            protectionSpace: space,
            proposedCredential: proposed,
            previousFailureCount: failures,
            failureResponse: nil,
            error: nil,
            sender: SilentSender()
        )
    }
}

/// Challenge sender that ignores all calls: a completion handler or a return value has the answer.
private final class SilentSender: NSObject, URLAuthenticationChallengeSender {
    func use(_ credential: URLCredential, for challenge: URLAuthenticationChallenge) {}
    func continueWithoutCredential(for challenge: URLAuthenticationChallenge) {}
    func cancel(_ challenge: URLAuthenticationChallenge) {}
    func performDefaultHandling(for challenge: URLAuthenticationChallenge) {}
    func rejectProtectionSpaceAndContinue(with challenge: URLAuthenticationChallenge) {}
}
