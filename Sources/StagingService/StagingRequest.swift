public import StageControl
public import StageEngine
public import StageModel

/// A request for packs: which, into which container, and by which means.
public struct StagingRequest: Sendable {
    /// The packs that are wanted.
    public enum Packs: Sendable {
        /// Those that policies, or the application's extension, call for at an event; `nil` finds out which
        /// event it is.
        case event(ContentRequest?, essentialOnly: Bool)
        /// These, by name.
        case named(Set<PackID>)
        /// These, which are damaged.
        case damaged(Set<PackID>)
    }

    /// The manifests and the container.
    public var target: StagingTarget
    /// The packs that are wanted.
    public var packs: Packs
    /// The options of fetching and unpacking.
    public var options: StagerOptions
    /// Whether the network is not to be used.
    public var isOffline = false
    /// Whether to stop at the plan; nothing is made or changed then.
    public var isDryRun = false
    /// The assumptions of a dry run, in the place of looking.
    public var assumptions = Assumptions()
    /// Whether the daemon, where one answers, is told of the staging and goes on with it when the task is cancelled
    /// or this process has ended.
    ///
    /// It is not told of what its workers cannot know: credentials, proxies, allowed domains, and registrations
    /// that are not the machine's.
    public var usesDaemon = true
    /// Whether a periodic run looks at network and power itself where no daemon does; a daemon's worker leaves that to it.
    package var waitsForConditions = true
    /// The instant at which the caller cancels the task, if there is one: what is interrupted after it fails with
    /// ``StagingFailure/deadline(about:received:from:)``.
    public var deadline: ContinuousClock.Instant?
    /// The address of the message bus of NetworkManager and UPower, where no daemon answers; `nil` for the system's.
    package var busAddress: String?

    /// Assumptions about the machine.
    public struct Assumptions: Sendable {
        /// Whether everything is staged that an installation stages.
        public var isInstalled = false
        /// The free space of the file system; `nil` for the true one.
        public var freeSpace: ByteCount?

        /// Creates the assumption that things are as they are.
        public init() {}
    }

    /// Creates a request.
    ///
    /// - Parameters:
    ///   - packs: The packs that are wanted.
    ///   - target: The manifests and the container.
    ///   - options: The options of fetching and unpacking.
    public init(_ packs: Packs, of target: StagingTarget, options: StagerOptions) {
        self.packs = packs
        self.target = target
        self.options = options
    }
}

/// An event of carrying out a request.
@nonexhaustive
public enum StagingUpdate: Sendable {
    /// An event of the request for the manifest.
    case manifest(StagingEvent)
    /// The packs of a plan are being staged from now on.
    case began(Plan)
    /// An event of a pack of the plan that was begun last.
    case pack(PackID, StagingEvent)
    /// The packs of the plan that was begun last have ended.
    case ended
    /// A person holds the daemon's task, for these reasons.
    case held([PendingReason.Kind])
    /// The daemon goes on with it, by the number of the task.
    case leftToDaemon(task: Int64)
    /// A person has cancelled the daemon's task.
    case cancelled
}
