/// The exit statuses of commands, grouped by phase, which applications that start a command read, too.
///
/// Two follow conventions: 64 means an invalid command line (`EX_USAGE`), and 130 an interruption by a
/// signal.
package enum ExitStatus: Int32, CaseIterable, Sendable {
    /// The command has done everything that was requested.
    case success = 0
    /// The pack is not staged, or not in the version that the command names: the commands that read or change staged packs.
    case notStaged = 2
    /// The command found problems: the commands that verify packs, a store, a manifest, registrations or the machine.
    case findings = 3

    /// Downloading the manifest failed.
    case manifestUnavailable = 10
    /// The received manifest is not valid, or no registration could be read.
    case manifestInvalid = 11
    /// The manifest is valid, but not accepted.
    case manifestRefused = 12
    /// The manifest has no such pack, or no run has decided about it.
    case unknownPack = 13
    /// The application's restrictions do not allow a pack before its first launch.
    case restricted = 14
    /// The application's downloader extension failed.
    case extensionFailed = 15
    /// The pack has no such file.
    case unknownFile = 16
    /// The keys of the application's root did not sign the manifest, or the signed metadata has expired.
    case manifestUntrusted = 17

    /// Downloading an archive failed: no connection, no answer, an incomplete one, or an overloaded server.
    case transferFailed = 20
    /// A server refused to send the archive.
    case transferRefused = 21
    /// The digest of the received content differs from the one in the manifest.
    case digestMismatch = 22
    /// The network demands a login first (captive portal).
    case captivePortal = 23

    /// An archive is damaged, or contains entries that a pack may not have.
    case contentRefused = 30
    /// Packaging a recipe or signing a manifest failed, or the files of a publisher cannot be read or
    /// written.
    case packagingFailed = 31

    /// The file system or the quota of the container has no space left.
    case noSpace = 40
    /// The container cannot be read or written.
    case containerUnusable = 41
    /// Another process uses the pack or the manifest.
    case inUse = 42
    /// The pack is pinned.
    case pinned = 43
    /// No earlier generation exists to which the pack could be rolled back.
    case noPrevious = 44

    /// The daemon does not answer.
    case daemonUnavailable = 50
    /// The daemon refused the request.
    case daemonRefused = 51

    /// The command line names objects that do not exist, or omits required ones.
    case usage = 64

    /// The system refuses threads, processes, open files or memory, or has no `/proc` (`EX_OSERR`).
    case systemShortage = 71
    /// The result could not be printed (`EX_IOERR`).
    case outputFailed = 74
    /// The deadline passed, the command may not use the network, a person has paused what a hook stages, or a registration
    /// changed during the run; the next run resumes.
    case unfinished = 75
    /// The configuration file of the command, or a variable that names a proxy, is not valid (`EX_CONFIG`).
    case configurationInvalid = 78
    /// A signal interrupted the command; the next run resumes.
    case interrupted = 130

    /// A line for the manual.
    package var summary: String {
        switch self {
        case .success: "everything that was requested is done"
        case .notStaged:
            "the pack, or the version named, is not staged (path, load, verify, repair, rollback, pin)"
        case .findings:
            "problems were found (verify, repair, doctor, app list, app validate, manifest lint, store verify)"
        case .manifestUnavailable: "the manifest could not be downloaded"
        case .manifestInvalid: "the manifest, the registration or the recipe is not valid"
        case .manifestRefused: "the manifest is refused"
        case .unknownPack: "the manifest has no such pack, or no run has decided about it (why)"
        case .restricted: "restrictions do not allow a pack before the first launch"
        case .extensionFailed: "the application's downloader extension failed"
        case .manifestUntrusted: "the manifest is not signed by trusted keys, or has expired"
        case .unknownFile: "the pack has no such file (load --file)"
        case .transferFailed: "an archive could not be downloaded"
        case .transferRefused: "a server refused an archive, or its file URL cannot be read"
        case .digestMismatch: "the received content differs from that of the manifest"
        case .captivePortal: "a login page of the network intercepted the download"
        case .contentRefused: "an archive is damaged or contains what a pack may not contain"
        case .packagingFailed: "packing or signing failed, or files cannot be read or written"
        case .noSpace: "not enough space for the container or the output"
        case .containerUnusable: "the container cannot be read or written"
        case .inUse: "another process works on a pack, or on a manifest"
        case .pinned: "a pack is pinned (prefetch, fetch, load, repair, remove)"
        case .noPrevious: "there is no previous generation (rollback)"
        case .daemonUnavailable:
            "the daemon does not answer (tasks, watch, cancel, pause, resume, metrics --daemon)"
        case .daemonRefused:
            "the daemon refused (tasks, watch, cancel, pause, resume, metrics --daemon)"
        case .usage: "the command line is not valid, or names a file that does not exist"
        case .systemShortage: "the system refuses processes, open files or memory, or has no /proc"
        case .outputFailed: "standard output could not be written"
        case .unfinished:
            "past the deadline, offline, paused, or a registration changed; a run resumes"
        case .configurationInvalid:
            "the configuration file (stagepack.json) or a proxy's variable is not valid"
        case .interrupted: "interrupted; the next run resumes"
        }
    }
}
