import Foundation
import FoundationNetworking
import StageControl
import StageModel
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

extension Challenge {
    /// Foundation's name of the place that asks.
    fileprivate var space: URLProtectionSpace {
        let isSecure = origin?.scheme != "http"
        return URLProtectionSpace(
            host: origin?.host ?? "",
            port: Int(origin?.port ?? 443),
            protocol: isSecure ? NSURLProtectionSpaceHTTPS : NSURLProtectionSpaceHTTP,
            realm: realm,
            authenticationMethod: method
        )
    }

    /// The credential that a storage has for the place that asks.
    func credential(from storage: URLCredentialStorage?) -> URLCredential? {
        guard let storage else { return nil }
        let space = space
        // On Linux two spaces of equal parts are not equal, so the storage itself finds nothing.
        let found = storage.allCredentials.filter { known, _ in
            known.host == space.host && known.port == space.port && known.realm == space.realm
                && known.authenticationMethod == space.authenticationMethod
                && [space.protocol, space.protocol == NSURLProtectionSpaceHTTP ? "http" : "https"]
                    .contains(known.protocol)
        }
        for known in found.keys {
            if let credential = storage.defaultCredential(for: known) { return credential }
        }
        return found.values.flatMap(\.values).first
    }
}

/// A credential on its way to another thread.
///
/// Unchecked, since an `URLCredential` does not change.
struct UnchangingCredential: @unchecked Sendable {
    /// The credential.
    var value: URLCredential?
}

/// A challenge on its way to another thread.
///
/// Unchecked, since what an `URLAuthenticationChallenge` has does not change.
struct UnchangingChallenge: @unchecked Sendable {
    /// The challenge.
    var value: URLAuthenticationChallenge
}

extension URLAuthenticationChallenge {
    /// Makes what Foundation has for a challenge.
    convenience init(_ challenge: Challenge, proposed: URLCredential?, failures: Int) {
        self.init(
            protectionSpace: challenge.space,
            proposedCredential: proposed,
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
