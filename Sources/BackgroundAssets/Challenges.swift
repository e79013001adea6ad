import Foundation
import FoundationNetworking
import StageExtension

extension URLAuthenticationChallenge {
    /// Makes what Foundation has for a challenge of a host.
    convenience init(_ challenge: ExtensionChallenge) {
        let method =
            switch challenge.method {
            case "basic": NSURLAuthenticationMethodHTTPBasic
            case "digest": NSURLAuthenticationMethodHTTPDigest
            default: challenge.method
            }
        self.init(
            protectionSpace: URLProtectionSpace(
                host: challenge.host,
                port: 0,
                protocol: NSURLProtectionSpaceHTTPS,
                realm: challenge.realm,
                authenticationMethod: method
            ),
            proposedCredential: nil,
            previousFailureCount: 0,
            failureResponse: nil,
            error: nil,
            sender: SilentSender()
        )
    }
}

/// Nobody to answer to but by the value that the extension returns.
private final class SilentSender: NSObject, URLAuthenticationChallengeSender {
    func use(_ credential: URLCredential, for challenge: URLAuthenticationChallenge) {}
    func continueWithoutCredential(for challenge: URLAuthenticationChallenge) {}
    func cancel(_ challenge: URLAuthenticationChallenge) {}
    func performDefaultHandling(for challenge: URLAuthenticationChallenge) {}
    func rejectProtectionSpaceAndContinue(with challenge: URLAuthenticationChallenge) {}
}

extension ExtensionChallengeAnswer {
    /// Makes the host's answer of what an extension returned.
    ///
    /// A credential without name and password is none: the host has no others.
    init(_ disposition: URLSession.AuthChallengeDisposition, _ credential: URLCredential?) {
        switch disposition {
        case .useCredential:
            guard let user = credential?.user, let password = credential?.password else {
                self = .performDefaultHandling
                return
            }
            self = .useCredential(user: user, password: password)
        case .performDefaultHandling: self = .performDefaultHandling
        case .cancelAuthenticationChallenge: self = .cancelAuthenticationChallenge
        case .rejectProtectionSpace: self = .rejectProtectionSpace
        }
    }
}
