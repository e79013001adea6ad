import Foundation
import FoundationNetworking
import StageControl
import Synchronization

extension Challenge {
    /// The value of the `Authorization` field that an application's answer comes to; `nil` for none.
    func answer(
        _ disposition: URLSession.AuthChallengeDisposition,
        _ credential: URLCredential?
    ) -> String? {
        guard disposition == .useCredential, let user = credential?.user,
            let password = credential?.password
        else { return nil }
        return authorization(user: user, password: password)
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
