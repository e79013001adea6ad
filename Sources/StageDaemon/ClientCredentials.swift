import StageControl
import StageSystem

/// Credentials of a connected client, from the kernel, and the options of its request.
struct ClientCredentials: Sendable {
    /// Effective user and groups of the process.
    var identity: UserIdentity
    /// Process identifier.
    var process: Int32
    /// Handle of the process, present for requests that need to inspect it.
    var peer: PeerProcess?
    /// User whose session the request names; `nil` for the client's own user.
    var owner: UInt32?
    /// Set if root asks for the sessions of all users.
    var wantsAll = false
    /// Set if the response includes the header fields of tasks that the same user created.
    var readsHeaders = false

    var user: UInt32 { identity.user }
    /// All groups of the process.
    var groups: Set<UInt32> { Set(identity.groups + [identity.group]) }

    /// Returns whether the client may see and change a session.
    func mayUse(_ session: SessionRecord) -> Bool {
        if session.user == user || user == 0 { return true }
        return session.group.map(identity.groups.contains) ?? false
    }

    /// Returns whether a session appears in the client's lists.
    func sees(_ session: SessionRecord) -> Bool {
        guard user == 0, session.user != 0 else { return mayUse(session) }
        return wantsAll
    }
}
