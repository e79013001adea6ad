import StageControl
import StageSystem

/// A client, as the kernel describes the process that connected.
struct Caller: Sendable {
    /// The effective user and the groups of the process.
    var identity: UserIdentity
    /// The number of the process.
    var process: Int32
    /// The process itself, where it was asked for.
    var peer: PeerProcess?
    /// The user whose session is meant, if not the caller.
    var owner: UInt32?
    /// Whether the superuser asks for what is everybody's.
    var wantsAll = false
    /// Whether the caller is told the header fields of tasks that the same user has created.
    var readsHeaders = false

    var user: UInt32 { identity.user }
    /// All groups of the process.
    var groups: Set<UInt32> { Set(identity.groups + [identity.group]) }

    /// Whether the caller may see and change a session.
    func mayUse(_ session: SessionRecord) -> Bool {
        if session.user == user || user == 0 { return true }
        return session.group.map(identity.groups.contains) ?? false
    }

    /// Whether a session is one that the caller gets to see unasked.
    func sees(_ session: SessionRecord) -> Bool {
        guard user == 0, session.user != 0 else { return mayUse(session) }
        return wantsAll
    }
}
