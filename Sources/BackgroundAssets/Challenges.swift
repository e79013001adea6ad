import Foundation
import FoundationNetworking
import StageControl
import StageExtension
import StageModel
import Synchronization

extension URLAuthenticationChallenge {
    /// Creates a Foundation challenge from a challenge of the host.
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

extension URLAuthenticationChallenge {
    /// Creates a Foundation challenge from a challenge of the daemon.
    convenience init(_ challenge: Challenge, failures: Int) {
        let origin = challenge.origin
        let isSecure = origin?.scheme != "http"
        let method =
            switch challenge.schemes.first {
            case _ where challenge.schemes.contains("basic"): NSURLAuthenticationMethodHTTPBasic
            case "digest": NSURLAuthenticationMethodHTTPDigest
            case let scheme: scheme ?? NSURLAuthenticationMethodDefault
            }
        self.init(
            protectionSpace: URLProtectionSpace(
                host: origin?.host ?? "",
                port: Int(origin?.port ?? 443),
                protocol: isSecure ? NSURLProtectionSpaceHTTPS : NSURLProtectionSpaceHTTP,
                realm: challenge.realm,
                authenticationMethod: method
            ),
            proposedCredential: nil,
            previousFailureCount: failures,
            failureResponse: nil,
            error: nil,
            sender: SilentSender()
        )
    }
}

extension Challenge {
    /// Returns the value of the `Authorization` field for a credential; `nil` if it has no user and password.
    func authorization(_ credential: URLCredential?) -> String? {
        guard let user = credential?.user, let password = credential?.password else { return nil }
        return authorization(user: user, password: password)
    }
}

/// Passes on the first answer to a challenge, and ignores others.
final class ChallengeReply: Sendable {
    /// Receives an answer.
    typealias Handler =
        @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void

    private let wasGiven = Atomic(false)
    private let body: Handler

    /// Creates a reply that calls `body`.
    init(_ body: @escaping Handler) { self.body = body }

    /// The completion handler for the delegate.
    var handler: Handler {
        { disposition, credential in
            guard !self.wasGiven.exchange(true, ordering: .acquiringAndReleasing) else { return }
            self.body(disposition, credential)
        }
    }
}

/// A sender that ignores calls: the extension answers by its return value only.
private final class SilentSender: NSObject, URLAuthenticationChallengeSender {
    func use(_ credential: URLCredential, for challenge: URLAuthenticationChallenge) {}
    func continueWithoutCredential(for challenge: URLAuthenticationChallenge) {}
    func cancel(_ challenge: URLAuthenticationChallenge) {}
    func performDefaultHandling(for challenge: URLAuthenticationChallenge) {}
    func rejectProtectionSpaceAndContinue(with challenge: URLAuthenticationChallenge) {}
}

extension ExtensionChallengeAnswer {
    /// Converts the answer of an extension for the host.
    ///
    /// A credential without user and password counts as none: the host supports no others.
    init(_ disposition: URLSession.AuthChallengeDisposition, credential: URLCredential?) {
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
