public import StageModel

/// The end of what a run did about a pack.
@nonexhaustive
public enum PackOutcome: String, Hashable, Codable, Sendable {
    /// It will be staged: the run only planned.
    case planned
    /// It was fetched and published.
    case staged
    /// It was there.
    case present
    /// Nothing was done.
    case left
    /// It could not be staged.
    case failed
    /// The daemon has it staged when network and power are such as it waits for.
    case waiting
    /// It was staged, and went to make room, or would go: the run only planned.
    case evicted
    /// It was staged, and was removed.
    case removed
}

/// The reason for what a run decided or did about a pack.
@nonexhaustive
public enum StagingReason: Hashable, Codable, Sendable {
    /// It is not staged.
    case missing
    /// Another version is staged.
    case outdated(staged: Int)
    /// Other content is staged under the same version.
    case contentChanged
    /// The staged files are damaged.
    case damaged
    /// It is staged already.
    case upToDate
    /// Its policy is to be fetched when the application asks for it.
    case onDemand
    /// Its policy names these events only.
    case otherEvents([InstallationEvent])
    /// Only essential packs were asked for.
    case notEssential
    /// Other packs were asked for by name.
    case notSelected
    /// The application's downloader extension did not ask for it.
    case declined
    /// It is held at a version, which a rollback from another one brought back where that is given.
    case pinned(version: Int, rolledBackFrom: Int?)
    /// It is for other versions of the application.
    case otherVersion(required: String, installed: String)
    /// Another container that readers look in has a newer version.
    case newerElsewhere(version: Int)
    /// It does not fit on the file system.
    case noSpace
    /// It does not fit into the container's quota.
    case exceedsQuota
    /// It exceeds this member of the registration's restrictions.
    case exceedsAllowance(name: String)
    /// Its hosts are not among those of the registration's restrictions.
    case disallowedDomain
    /// It is to make room for others; used last at `lastUsed`, in seconds since 1970.
    case makesRoom(EvictionReason, lastUsed: Int64)
    /// It made room for others; used last at `lastUsed`, in seconds since 1970.
    case evicted(EvictionReason, lastUsed: Int64)
    /// It was to make room, and is in use since then.
    case inUse
    /// Another process staged it during the run.
    case stagedByOther
    /// The daemon waits for these conditions, by the names of the control protocol.
    case held([String])
    /// A command or the application removed it by name.
    case removedByName
    /// No manifest offers it any more.
    case offeredNoMore
}

/// The reasons for which a generation may go, in the order in which generations go.
@nonexhaustive
public enum EvictionReason: String, Hashable, Codable, Sendable, CaseIterable {
    /// It is neither current nor what a rollback brings back.
    case obsolete
    /// It is what a rollback would bring back.
    case previous
    /// The application fetches the pack when it wants it.
    case onDemand
    /// The pack is not essential.
    case prefetch
}
