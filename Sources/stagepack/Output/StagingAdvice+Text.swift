import StageModel
import StageSystem
import StagingService

extension StagingAdvice {
    /// Returns the advice as a text for the user of this program.
    ///
    /// - Parameters:
    ///   - pause: The retry delay that a server asked for.
    ///   - pack: The pack that the failure concerns.
    ///   - source: The options of the run, which commands of the advice repeat.
    /// - Returns: A fragment.
    func text(
        after pause: Duration?,
        about pack: PackID?,
        source: HintSource = .current
    ) -> String {
        if self == .runAgainLater {
            return "run it again " + (pause.map { "in \($0.inWords)" } ?? "later")
        }
        if self == .goOnline, let command = Self.onlineCommand { return command }
        return command(for: pack, in: source) ?? text
    }

    /// The advice to run this command without `--offline`, and before it to unset `STAGEPACK_OFFLINE` if that is set; `nil` if
    /// the daemon has started it.
    static var onlineCommand: String? {
        HintSource.thisCommand(without: ["--offline"]).map { command in
            let isSet = ProcessEnvironment.current["STAGEPACK_OFFLINE"] != nil
            return isSet ? "run 'unset STAGEPACK_OFFLINE', then \(command)" : "run \(command)"
        }
    }

    /// Returns the advice for a run that ended earlier: names the command that resumes it.
    func textForLater(after pause: Duration?, about pack: PackID?) -> String {
        // The options of this command are not those of the run.
        if self == .goOnline { return text }
        guard self == .runAgain else { return text(after: pause, about: pack) }
        let source = HintSource.current
        let command = pack.map { source.staging("fetch", $0.text) } ?? source.staging("prefetch")
        return command.map { "run \($0), which resumes it" } ?? text
    }

    private var text: String {
        switch self {
        case .runAgainLater: "run it again later"
        case .raiseLimits: SystemShortage.limitHint
        case .checkNetwork: "check the network and the server, then run it again"
        case .checkProxy:
            "check the network and the proxy, then run it again; http_proxy, https_proxy, all_proxy, "
                + "'\(SettingsFile.path)' or 'stagepackd.json' of the daemon names the proxy"
        case .logIn:
            "log in to the network with a web browser, or correct the URL, then run it again"
        case .passCredentials: "pass credentials with --netrc-file or --token-file"
        case .passProxyCredentials:
            "set http_proxy or https_proxy, or for services 'httpProxy' or 'httpsProxy' in "
                + "'\(SettingsFile.path)', to 'http://USER:PASSWORD@HOST:PORT'"
        case .checkURL: "check the URL"
        case .checkManifestURL: "check the URL of the manifest"
        case .checkSourceFile:
            "check the path, and that its disk is mounted; if both are right, tell the publisher that the file "
                + "is missing"
        case .permitReading:
            "let this user read the file and enter the directories above it, or run it as a user who may"
        case .nameManifestFile: "name the manifest's file"
        case .checkClock: "check this machine's clock with 'date'"
        case .passAuthority:
            "if the server has an authority of its own, pass it with --cacert, or for services name it as "
                + "'certificateAuthorities' in '\(SettingsFile.path)'"
        case .goOnline: "run it again without --offline and STAGEPACK_OFFLINE"
        case .freeSpace: "free some space"
        case .freeInodes: FileError.inodeAdvice
        case .enableLandlock:
            "boot a kernel with Landlock enabled (Linux 5.13), or run it as "
                + "another user"
        case .enableCallFilters: "boot a kernel with seccomp filters, or run it as another user"
        case .enableCallFiltersForExtensions:
            "run it on a kernel, or in a container, that allows seccomp "
                + "filters; the policies of the manifest decided"
        case .enableLandlockForExtensions:
            "add 'landlock' to the kernel's parameter 'lsm=' (Linux 5.13); the "
                + "policies of the manifest decided"
        case .decodeInProcess: "run it as another user"
        case .makeWritable: "make the file system writable, or pass --container"
        case .removeFile: "remove it, and run it again"
        case .runAsOwner: "run it as the user that owns the container, or pass --container"
        case .checkContainer: "run \(HintSource.quoted(["doctor"]))"
        case .waitForProcess: "run it again when the other process has ended"
        case .prefetchFirst: "pass the --container of staged packs, or --app ID"
        case .nameEmptyDirectory:
            "name an empty directory with --container, or one that does not exist"
        case .nameDirectory:
            "move the file that is at this path or above it, or name a directory with --container"
        case .useMakersVersion: "use the version of stagepack that made it"
        case .removeRecord: "remove it, and stage the packs again"
        case .restoreRecord:
            "run \(HintSource.quoted(["prefetch"])) with this --container and --app ID or --manifest URL, which writes it "
                + "again"
        case .repair: "stage the damaged packs again"
        case .load: "pass --manifest URL or --app ID to fetch it"
        case .showStatus: "name a pack that was updated"
        case .releasePin: "release the pin first"
        case .raiseQuota: "raise 'quota' in the registration, or remove packs"
        case .updateApplication: "update the application"
        case .startApplication: "start the application: restrictions end when it has loaded a pack"
        case .tellPackagerOfHost: "tell the application's packager, or start the application"
        case .tellPackagerOfExtension:
            "tell the application's packager; the policies of the manifest decided"
        case .correctRegistration: "correct the file, or install the application's package again"
        case .installApplication:
            "install its package, or pass --manifest URL; 'stagepack app list' has those that are registered"
        case .nameManifest: "pass --manifest URL or --app ID"
        case .runAgain:
            "run the same command again: it resumes downloads from servers that support ranges"
        case .listPacks: "name a pack of the manifest"
        case .listFiles: "name a file of the pack"
        case .nameFileInDirectory: "name a file in it, or load the whole pack without '--file'"
        case .loadWholePack: "load the whole pack without '--file'"
        case .updateStagePack: "update stagepack"
        case .checkManifest: "tell the publisher: the manifest is not valid"
        case .renewMetadata:
            "check this machine's clock with 'date'; if it is right, tell the publisher to renew the "
                + "metadata"
        case .distrustServer:
            "tell the publisher: the server does not have the signed files"
        case .compareRoot:
            "compare the root with the publisher's; if it is the same, tell the publisher that the server has "
                + "files that its keys did not sign"
        case .fetchManifestAnew:
            "run again with the network, which replaces the stored manifest"
        case .nameRoot: "pass --app ID, or --root FILE"
        case .separatePacks: "give the pack another id, or use another group or container"
        case .useRegisteredRoot: "pass --app ID without --root"
        case .serveSecurely:
            "use a URL with https, or verify signed metadata: '--root FILE', or 'trust' of the registration"
        case .correctApplication: "check the URL of the manifest"
        case .tellPublisherOfLocalFiles:
            "tell the publisher: only a local manifest may name local files"
        case .tellPublisherOfRevision: "tell the publisher: a manifest's revision must not decrease"
        case .tellPublisherOfOtherFile:
            "tell the publisher: the file on the server differs from the one in the manifest"
        case .tellPublisherOfMissingFile: "tell the publisher: the server does not have the file"
        case .tellPublisherOfRefusal: "tell the publisher: the server refuses to send the file"
        case .tellPublisherOfServer: "tell the publisher: the address or the server must be changed"
        case .tellPublisherOfManifestSize:
            "tell the publisher: a manifest has at most \(ManifestLimits.byteCount >> 20) MiB"
        case .tellPublisherOfEncoding:
            "tell the publisher: the server must send the file without an encoding"
        case .tellPublisherOfProtocol:
            "tell the publisher: the server, or a proxy before it, does not "
                + "follow HTTP"
        case .tellPublisherOfIndex: "tell the publisher: the index is damaged"
        case .tellPublisherOfFigures:
            "tell the publisher: installedSize, fileCount and directoryCount must be exact"
        case .tellPublisherToPackage: "tell the publisher to package the pack again"
        case .runAgainThenTellPublisher: "run it again; if it happens again, tell the publisher"
        }
    }
}
