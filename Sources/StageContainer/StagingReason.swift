public import StageModel

/// Outcomes of a run for a pack.
@nonexhaustive
public enum PackOutcome: String, Hashable, Codable, Sendable {
    /// The run only planned; the pack will be staged.
    case planned
    /// The pack was downloaded and published.
    case staged
    /// The pack was staged already.
    case present
    /// The run did nothing about the pack.
    case left
    /// Staging the pack failed.
    case failed
    /// The daemon will stage the pack when network and power meet its conditions.
    case waiting
    /// The pack was evicted or, if the run only planned, would be evicted.
    case evicted
    /// The pack was removed.
    case removed
}

/// Reasons for a decision about a pack, or for its outcome.
@nonexhaustive
public enum StagingReason: Hashable, Codable, Sendable {
    /// The pack is not staged.
    case missing
    /// Another version is staged.
    case outdated(staged: Int)
    /// The staged content has the same version and another digest.
    case contentChanged
    /// The staged files are damaged.
    case damaged
    /// The pack is staged in this version.
    case upToDate
    /// The policy of the pack is to download it when the application requests it.
    case onDemand
    /// The policy of the pack names these events only.
    case otherEvents([InstallationEvent])
    /// Only essential packs were requested.
    case notEssential
    /// Other packs were requested by name.
    case notSelected
    /// The application's downloader extension did not select the pack.
    case declined
    /// The pack is pinned to a version, possibly by a rollback from another one.
    case pinned(version: Int, rolledBackFrom: Int?)
    /// The pack requires other versions of the application than the installed one.
    case otherVersion(required: String, installed: String)
    /// Another container that readers use has a newer version.
    case newerElsewhere(version: Int)
    /// Another application of the group offers the staged version, which is not older.
    case offeredByOther(application: String, version: Int)
    /// The pack does not fit on the file system.
    case noSpace
    /// The pack does not fit into the container's quota.
    case exceedsQuota
    /// The pack exceeds the named limit of the registration's restrictions.
    case exceedsAllowance(name: String)
    /// None of the pack's hosts is allowed by the registration's restrictions.
    case disallowedDomain
    /// The pack will be evicted to free space; last used at `lastUsed`, in seconds since 1970.
    case makesRoom(EvictionReason, lastUsed: Int64)
    /// The pack was evicted to free space; last used at `lastUsed`, in seconds since 1970.
    case evicted(EvictionReason, lastUsed: Int64)
    /// The pack was to be evicted, and has come into use since the decision.
    case inUse
    /// Another process staged the pack during the run.
    case stagedByOther
    /// The daemon waits for these conditions, named as in the control protocol.
    case held([String])
    /// The pack was removed by name, by a command or the application.
    case removedByName
    /// No manifest offers the pack any more.
    case offeredNoMore
}

/// Reasons why a generation may be evicted, in order of eviction.
@nonexhaustive
public enum EvictionReason: String, Hashable, Codable, Sendable, CaseIterable {
    /// The generation is neither current nor the previous one.
    case obsolete
    /// A rollback would make the generation current.
    case previous
    /// The policy of the pack is to be downloaded when the application requests it.
    case onDemand
    /// The policy of the pack is `prefetch`, so it is not essential.
    case prefetch
}
