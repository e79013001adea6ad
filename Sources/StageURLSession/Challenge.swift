import Foundation
import FoundationNetworking
import StageChallenge
import StageControl
import StageModel
import Synchronization

extension Challenge {
    /// Returns the value of the `Authorization` field for an application's answer; `nil` for none.
    func authorization(
        for disposition: URLSession.AuthChallengeDisposition,
        credential: URLCredential?
    ) -> String? {
        guard disposition == .useCredential, let user = credential?.user,
            let password = credential?.password
        else { return nil }
        return authorization(user: user, password: password)
    }
}

extension Challenge {
    /// Foundation's protection space of the challenge.
    fileprivate var space: URLProtectionSpace {
        URLProtectionSpace(
            host: origin?.host ?? "",
            port: Int(origin?.port ?? 443),
            isSecure: origin?.scheme != "http",
            realm: realm,
            schemes: schemes
        )
    }

    /// Returns the stored credential for the protection space.
    func credential(from storage: URLCredentialStorage?) -> URLCredential? {
        guard let storage else { return nil }
        // On Linux, protection spaces with equal properties are not equal, so the storage itself finds nothing.
        let found = storage.allCredentials.filter { known, _ in isIn(known) }
        for known in found.keys {
            if let credential = storage.defaultCredential(for: known) { return credential }
        }
        return found.values.flatMap(\.values).first
    }

    /// Stores a credential that the server has accepted as the default one of the protection space, unless it is for one
    /// request only.
    ///
    /// Foundation on Linux keeps it in memory, whatever its persistence, and stores no synchronizable one.
    fileprivate func store(_ credential: URLCredential, in storage: URLCredentialStorage) {
        guard credential.persistence != .none else { return }
        // The storage would add a new space even if it has an equal one.
        let known = storage.allCredentials.keys.first { isIn($0) }
        storage.setDefaultCredential(credential, for: known ?? space)
    }

    /// Returns whether the challenge is one of a protection space.
    private func isIn(_ known: URLProtectionSpace) -> Bool {
        let space = space
        let schemes = [
            space.protocol, space.protocol == NSURLProtectionSpaceHTTP ? "http" : "https",
        ]
        return known.host == space.host && known.port == space.port && known.realm == space.realm
            && known.authenticationMethod == space.authenticationMethod
            && schemes.contains(known.protocol)
    }
}

/// An application's answer to a challenge, with its credential.
struct AnsweredChallenge: Sendable {
    /// Value of the `Authorization` field.
    let authorization: String
    private let challenge: Challenge
    private let credential: UnchangingCredential

    /// Creates the answer; `nil` if it has no credential that can be sent.
    init?(
        _ challenge: Challenge,
        disposition: URLSession.AuthChallengeDisposition,
        credential: URLCredential?
    ) {
        let value = challenge.authorization(for: disposition, credential: credential)
        guard let value else { return nil }
        authorization = value
        self.challenge = challenge
        self.credential = UnchangingCredential(value: credential)
    }

    /// Stores the credential, which the server has accepted, as its persistence says.
    func storeCredential(in storage: URLCredentialStorage) {
        if let credential = credential.value { challenge.store(credential, in: storage) }
    }
}

extension URLSessionTask {
    /// Stores the credential that has answered a challenge, unless there is no response, or it is another challenge.
    func storeCredential(afterStatus status: Int?) {
        guard let answered = record.withLock({ $0.answered.take() }),
            let status, status != 401, status != 407,
            let storage = session.rules.urlCredentialStorage
        else { return }
        answered.storeCredential(in: storage)
    }
}

/// A credential that is passed to another thread.
///
/// Unchecked, since a `URLCredential` does not change.
struct UnchangingCredential: @unchecked Sendable {
    /// The credential.
    var value: URLCredential?
}

extension URLAuthenticationChallenge {
    /// Creates Foundation's representation of a challenge.
    convenience init(_ challenge: Challenge, proposed: URLCredential?, failures: Int) {
        self.init(challenge.space, proposed: proposed, failures: failures)
    }
}

/// A flag that is set once, by the first caller.
final class OneShotFlag: Sendable {
    private let isSet = Atomic(false)

    /// Sets the flag; returns `true` for the first call, `false` for all others.
    func claim() -> Bool { !isSet.exchange(true, ordering: .acquiringAndReleasing) }
}
