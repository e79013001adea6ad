public import StageControl
public import StageEngine
public import StageModel

/// A request to stage packs: their selection, their container, and the means.
public struct StagingRequest: Sendable {
    /// Selection of packs.
    @nonexhaustive
    public enum Packs: Sendable {
        /// The packs that policies, or the application's extension, select for an event; `nil` determines the
        /// event from the container.
        case event(ContentRequest?, essentialOnly: Bool)
        /// Packs by name.
        case named(Set<PackID>)
        /// Damaged packs, which are staged again.
        case damaged(Set<PackID>)
    }

    /// The manifests and the container.
    public var target: StagingTarget
    /// The selected packs.
    public var packs: Packs
    /// The options for downloading and unpacking.
    public var options: StagerOptions
    /// Set if the request may not use the network.
    public var isOffline = false
    /// Set to make only a plan; the run then creates and changes no files.
    public var isDryRun = false
    /// The assumptions of a dry run, which replace the actual state of the machine.
    public var assumptions = Assumptions()
    /// Set if the daemon, where one answers, knows of the staging, and resumes it when the task is cancelled
    /// or this process has ended.
    ///
    /// The daemon is not used for requests that its workers cannot repeat: those with credentials, proxies,
    /// allowed domains, or registrations that are not installed on the machine.
    public var usesDaemon = true
    /// Set if an earlier run for this request has failed, and the request is carried out again: the history counts both as one
    /// failed run.
    package var isRepetition = false
    /// Returns whether the daemon's task ends with the Swift task, instead of being resumed; `nil` if it is always resumed.
    ///
    /// Called when the Swift task is cancelled.
    package var withdrawsWhenCancelled: (@Sendable () -> Bool)?
    /// Unset if the run ends once a person has paused its task at the daemon, instead of waiting until a person resumes it.
    package var waitsWhilePaused = true
    /// Set if a periodic run checks network and power itself where no daemon does; unset in the daemon's
    /// workers, for which the daemon checks them.
    package var waitsForConditions = true
    /// The settings of the machine, which the daemon's workers read as well.
    package var settings = CommandSettings()
    /// The conditions for packs and files that no person waits for.
    package var updateConditions: UpdateConditions {
        settings.updateConditions ?? target.registration?.updateConditions ?? UpdateConditions()
    }
    /// The time at which the caller cancels the task, if any: work interrupted after it fails with
    /// ``StagingFailure/deadline(about:received:from:lastFailure:)``.
    public var deadline: ContinuousClock.Instant?
    /// The address of the message bus of NetworkManager and UPower, used where no daemon answers; `nil` for
    /// the system bus.
    package var busAddress: String?

    /// Assumptions about the machine.
    public struct Assumptions: Sendable {
        /// Set to assume that all packs of an installation are staged.
        public var isInstalled = false
        /// The free space of the file system; `nil` for the actual free space.
        public var freeSpace: ByteCount?

        /// Creates empty assumptions: the dry run uses the actual state of the machine.
        public init() {}
    }

    /// Creates a request.
    ///
    /// - Parameters:
    ///   - packs: The selected packs.
    ///   - target: The manifests and the container.
    ///   - options: The options for downloading and unpacking.
    public init(_ packs: Packs, of target: StagingTarget, options: StagerOptions) {
        self.packs = packs
        self.target = target
        self.options = options
    }
}

/// An event while a request is carried out.
@nonexhaustive
public enum StagingUpdate: Sendable {
    /// An event of the request for the manifest.
    case manifest(StagingEvent)
    /// Staging the packs of a plan begins.
    case began(Plan)
    /// An event of a pack of the plan that began last.
    case pack(PackID, StagingEvent)
    /// The packs of the plan that began last have ended.
    case ended
    /// A person has paused the daemon's task, for these reasons.
    case held([PendingReason.Kind])
    /// The daemon resumes the staging as the task of this number.
    case leftToDaemon(task: Int64)
    /// A person has cancelled the daemon's task.
    case cancelled
}
