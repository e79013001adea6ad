/// What the command tells its caller when it ends, grouped by phase.
///
/// 64 is the status of a command line that cannot be understood (`EX_USAGE`), 130 that of an
/// interruption; both are conventions that other programs keep.
enum ExitStatus: Int32, CaseIterable {
    /// Everything that was asked for is so.
    case success = 0
    /// `path`, `verify` and `status` of a pack: it is not staged.
    case notStaged = 2
    /// `verify`, `doctor` and `manifest lint`: something is wrong.
    case findings = 3

    /// The manifest could not be had.
    case manifestUnavailable = 10
    /// What was received is not a valid manifest, or no registration could be read.
    case manifestInvalid = 11
    /// The manifest is well formed and not accepted.
    case manifestRefused = 12
    /// The manifest has no such pack.
    case unknownPack = 13
    /// The application's restrictions do not allow a pack before its first launch.
    case restricted = 14
    /// The application's downloader extension did not do its part.
    case extensionFailed = 15
    /// The pack has no such file.
    case unknownFile = 16
    /// The manifest is not what the keys of its application's root have signed, or that has expired.
    case manifestUntrusted = 17

    /// An archive could not be had: no connection, no answer, no end.
    case transferFailed = 20
    /// A server answered that it will not give the archive.
    case transferRefused = 21
    /// What was received is not what the manifest names.
    case digestMismatch = 22
    /// The network wants somebody to log in first.
    case captivePortal = 23

    /// An archive is damaged or holds what a pack may not hold.
    case contentRefused = 30
    /// A recipe cannot be made into a pack, a manifest cannot be signed, or the files of a publisher
    /// cannot be read or written.
    case packagingFailed = 31

    /// The file system of the container is full.
    case noSpace = 40
    /// The container cannot be read or written.
    case containerUnusable = 41
    /// A pack, or a manifest, that another process works on cannot be changed.
    case inUse = 42
    /// A pack that is pinned is not changed.
    case pinned = 43
    /// There is no generation that a pack could be rolled back to.
    case noPrevious = 44

    /// The daemon does not answer.
    case daemonUnavailable = 50
    /// The daemon refused what was asked of it.
    case daemonRefused = 51

    /// The command line names something that is not there, or leaves out what is needed.
    case usage = 64

    /// The system refuses threads, processes, open files or memory, or has no `/proc` (`EX_OSERR`).
    case systemShortage = 71
    /// What was asked for could not be printed (`EX_IOERR`).
    case outputFailed = 74
    /// The time was up, or the command was told to stay offline: what is here is continued next time.
    case unfinished = 75
    /// Interrupted by a signal: what is here is continued next time.
    case interrupted = 130

    /// One line for the manual.
    var summary: String {
        switch self {
        case .success: "everything that was requested is done"
        case .notStaged: "the pack is not staged (path, load --offline, verify)"
        case .findings: "problems were found (verify, doctor, manifest lint)"
        case .manifestUnavailable: "the manifest could not be downloaded"
        case .manifestInvalid: "the manifest, the registration or the recipe is not valid"
        case .manifestRefused: "the manifest is refused"
        case .unknownPack: "the manifest has no such pack"
        case .restricted: "restrictions do not allow a pack before the first launch"
        case .extensionFailed: "the application's downloader extension failed"
        case .manifestUntrusted: "the manifest is not signed by trusted keys, or has expired"
        case .unknownFile: "the pack has no such file (load --file)"
        case .transferFailed: "an archive could not be downloaded"
        case .transferRefused: "a server refused an archive"
        case .digestMismatch: "the received content differs from that of the manifest"
        case .captivePortal: "a login page of the network intercepted the download"
        case .contentRefused: "an archive is damaged or contains what a pack may not contain"
        case .packagingFailed: "packing or signing failed, or files cannot be read or written"
        case .noSpace: "not enough space for the container or the output"
        case .containerUnusable: "the container cannot be read or written"
        case .inUse: "another process works on a pack, or on a manifest"
        case .pinned: "a pack is pinned (fetch, repair, remove)"
        case .noPrevious: "there is no previous generation (rollback)"
        case .daemonUnavailable: "the daemon does not answer (tasks, watch, cancel, pause, resume)"
        case .daemonRefused: "the daemon refused (tasks, watch, cancel, pause, resume)"
        case .usage: "the command line is not valid"
        case .systemShortage: "the system refuses processes, open files or memory, or has no /proc"
        case .outputFailed: "standard output could not be written"
        case .unfinished: "the deadline has passed, or the command is offline; the next run resumes"
        case .interrupted: "interrupted; the next run resumes"
        }
    }
}
