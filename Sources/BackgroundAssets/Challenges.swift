import Foundation
import FoundationNetworking
import StageChallenge
import StageControl
import StageExtension
import StageModel
import Synchronization

extension URLAuthenticationChallenge {
    /// Creates a Foundation challenge from a challenge of the host.
    convenience init(_ challenge: ExtensionChallenge) {
        self.init(
            URLProtectionSpace(
                host: challenge.host,
                port: 0,
                isSecure: true,
                realm: challenge.realm,
                schemes: [challenge.method]
            )
        )
    }

    /// Creates a Foundation challenge from a challenge of the daemon.
    convenience init(_ challenge: Challenge, failures: Int) {
        let origin = challenge.origin
        let space = URLProtectionSpace(
            host: origin?.host ?? "",
            port: Int(origin?.port ?? 443),
            isSecure: origin?.scheme != "http",
            realm: challenge.realm,
            schemes: challenge.schemes
        )
        self.init(space, failures: failures)
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
