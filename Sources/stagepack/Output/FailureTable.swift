import StageArchive
import StageContainer
import StageEngine
import StageExtension
import StageModel
import StageOrigin
import StagePack
import StageSystem
import StageTransfer
import SystemPackage

// The one place where failures become exit statuses and hints. A new case of an error is a compile
// error here.

extension CommandFailure {
    /// A command line that cannot be carried out as it is written.
    static func usage(_ message: String) -> CommandFailure {
        CommandFailure(status: .usage, message: message, hint: nil, retry: .never)
    }

    /// Something that is not here, and that the network is not to be used for.
    static func offline(_ message: String) -> CommandFailure {
        CommandFailure(
            status: .unfinished,
            message: "\(message), and the network is not to be used",
            hint: "run it again without --offline and STAGEPACK_OFFLINE",
            retry: .later
        )
    }

    /// What a failure of the engine means to the user; `pack` is the pack it is about.
    init(_ error: StageError, pack: PackID? = nil) {
        self.init(error, of: pack.map { "pack '\($0)'" })
    }

    /// What a failure of the engine means to the user; `what` names what it is about.
    init(_ error: StageError, of what: String?) {
        let prefix = what.map { "\($0): " } ?? ""
        let outcome = Self.outcome(of: error)
        self.init(
            status: outcome.status,
            message: prefix + error.description,
            hint: outcome.hint,
            retry: outcome.retry
        )
    }

    /// What the refusal of a plan means to the user.
    init(_ refusal: Plan.Refusal, pack: PackID) {
        self.init(refusal, of: "pack '\(pack)'")
    }

    /// What a failure of the development origin means to the user.
    init(_ error: OriginError) {
        let hint: String? =
            switch error {
            case .directory: nil
            case .address: "pass another --port, or 0 for any"
            }
        self.init(status: .usage, message: error.description, hint: hint, retry: .never)
    }

    /// What a failure of a downloader extension means to the user.
    init(_ error: ExtensionError) {
        if case .cancelled = error {
            self.init(StageError.cancelled)
            return
        }
        self.init(
            status: .extensionFailed,
            message: error.description,
            hint: error.hint,
            retry: .later
        )
    }

    /// What a refusal means to the user; `what` names what is refused.
    init(_ refusal: Plan.Refusal, of what: String) {
        switch refusal {
        case .noSpace(let needed, let available):
            self.init(StageError.noSpace(needed: needed, available: available), of: what)
        case .exceedsAllowance(let allowance, let needed, let remaining):
            self.init(
                status: .restricted,
                message: "\(what): '\(allowance.rawValue)' of the registration leaves "
                    + "\(remaining), and it takes \(needed)",
                hint: "start the application: restrictions end when it has loaded a pack",
                retry: .later
            )
        case .disallowedDomain(let hosts):
            let names = hosts.map { "'\($0.forDisplay())'" }.joined(separator: ", ")
            self.init(
                status: .restricted,
                message: "\(what): 'downloadDomainAllowList' of the registration does not "
                    + "have \(names)",
                hint: "tell the application's packager, or start the application",
                retry: .later
            )
        case .exceedsQuota(let needed, let remaining):
            self.init(
                status: .noSpace,
                message: "\(what): the quota of the container leaves "
                    + "\(max(remaining, .zero)), and it takes \(needed)",
                hint: "raise 'quota' in the registration, or remove packs",
                retry: .later
            )
        case .otherVersion(let required, let installed):
            self.init(
                status: .manifestRefused,
                message: "\(what): it requires application version '\(required)', "
                    + "found '\(installed)'",
                hint: "update the application",
                retry: .never
            )
        case .pinned(let pin):
            self.init(
                status: .pinned,
                message: "\(what): it is \(pin.text)",
                hint: Self.pinHint,
                retry: .never
            )
        }
    }

    init(_ error: ContainerError) {
        self.init(.container(error))
    }

    private static let pinHint = "let it be updated first: 'stagepack pin --release PACK'"

    private static let inexactFiguresHint =
        "tell the publisher: installedSize and fileCount must be exact"

    private typealias Outcome = (status: ExitStatus, hint: String?, retry: Retry)

    private static func outcome(of error: StageError) -> Outcome {
        switch error {
        case .manifestUnavailable(let error):
            manifestOutcome(of: error)
        case .manifestInvalid(_, .unknownVersion):
            (.manifestInvalid, "update stagepack", .never)
        case .manifestInvalid:
            (.manifestInvalid, "run 'stagepack manifest lint' on the publisher's side", .never)
        case .manifestRefused(_, let refusal):
            (.manifestRefused, hint(for: refusal), .never)
        case .unknownPack:
            (.unknownPack, "run 'stagepack plan' to see the packs that there are", .never)
        case .noSpace:
            (.noSpace, "free some space, or run 'stagepack gc'", .later)
        case .transfer(let error):
            outcome(of: error)
        case .content(let error):
            outcome(of: error)
        case .noSuchFile(_, let fault):
            outcome(of: fault)
        case .index:
            (.contentRefused, "tell the publisher: the index is damaged", .never)
        case .incompleteContent:
            (.contentRefused, inexactFiguresHint, .never)
        case .container(let error):
            outcome(of: error)
        case .cancelled:
            (.interrupted, "run the same command again: it goes on where this one ended", .now)
        }
    }

    private static func outcome(of fault: FileFault) -> Outcome {
        switch fault {
        case .isMissing:
            (.unknownFile, "run 'stagepack load' without '--file' to see what it has", .never)
        case .isDirectory:
            (.usage, "name a file in it, or load the whole pack without '--file'", .never)
        case .packHasNoIndex:
            (.usage, "load the whole pack without '--file'", .never)
        case .isForOtherVersion:
            (.manifestRefused, "update the application", .never)
        }
    }

    private static func manifestOutcome(of error: TransferError) -> Outcome {
        let outcome = outcome(of: error)
        return switch error {
        case .captivePortal, .outOfSpace, .cancelled: outcome
        case .refused(_, 404, _), .refused(_, 410, _):
            (.manifestUnavailable, "check the URL of the manifest", outcome.retry)
        default: (.manifestUnavailable, outcome.hint, outcome.retry)
        }
    }

    private static func hint(for refusal: ManifestRefusal) -> String {
        switch refusal {
        case .insecure: "serve the manifest over https"
        case .localContent: "tell the publisher: only a local manifest may name local files"
        case .wentBack: "tell the publisher: a manifest's revision must not decrease"
        case .otherApplication: "check the URL, or use another container"
        case .otherVersion: "update the application"
        }
    }

    private static func outcome(of error: TransferError) -> Outcome {
        switch error {
        case .unreachable:
            (.transferFailed, "check the network and the server, then run it again", .later)
        case .refused(_, let status, let pause):
            (.transferRefused, hint(forStatus: status, pause), retry(error))
        case .captivePortal:
            (.captivePortal, "open a web page and log in to the network, then run it again", .later)
        case .wrongSize, .wrongDigest:
            (
                .digestMismatch, "tell the publisher: the file on the server is not the manifest's",
                .later
            )
        case .unacceptable(_, let reason):
            (.transferRefused, hint(for: reason), retry(error))
        case .untrusted(_, let fault, _):
            (.transferFailed, hint(for: fault), .later)
        case .outOfSpace:
            (.noSpace, "free some space, or run 'stagepack gc'", .later)
        case .storage(let error):
            outcome(of: error)
        case .cancelled:
            outcome(of: StageError.cancelled)
        }
    }

    private static func retry(_ error: TransferError) -> Retry {
        switch error.retryAdvice {
        case .soon: .now
        case .later: .later
        case .never: .never
        }
    }

    private static func hint(forStatus status: Int, _ pause: Duration?) -> String {
        switch status {
        case 401, 403: "pass credentials with --netrc-file or --token-file"
        case 404, 410: "tell the publisher: the server does not have the file"
        case 407: "set http_proxy or https_proxy to 'http://USER:PASSWORD@HOST:PORT'"
        case 408, 425, 429, 500...: "run it again " + (pause.map { "in \($0.inWords)" } ?? "later")
        default: "tell the publisher: the server does not give the file"
        }
    }

    private static func hint(for reason: TransferError.Unacceptable) -> String? {
        switch reason {
        case .url: "check the URL"
        case .noMirror, .domain, .thisMachine, .redirect, .redirects, .ranges, .size:
            "tell the publisher: the address or the server must be changed"
        case .contentEncoding:
            "tell the publisher: the server must send the file without an encoding"
        case .answer:
            "tell the publisher: the server, or a proxy before it, does not follow HTTP"
        case .request, .library: nil
        }
    }

    private static func hint(for fault: TransferError.CertificateFault) -> String {
        switch fault {
        case .notYetValid, .expired: "check this machine's clock with 'date'"
        case .unverified: "if the server has an authority of its own, pass it with --cacert"
        }
    }

    private static func outcome(of error: ArchiveError) -> Outcome {
        switch error {
        case .fileSystem(let error):
            outcome(of: error)
        case .interrupted:
            (.contentRefused, "run it again; if it happens again, tell the publisher", .later)
        case .notConfined(let missing):
            (.containerUnusable, hint(for: missing), .never)
        case .cancelled:
            outcome(of: StageError.cancelled)
        case .tooManyEntries, .tooLarge:
            (.contentRefused, inexactFiguresHint, .never)
        case .wrongFormat, .damaged, .notAllowed, .collision:
            (.contentRefused, "tell the publisher to package the pack again", .never)
        }
    }

    private static func hint(for missing: ArchiveError.Missing) -> String {
        switch missing {
        case .landlock:
            "boot a kernel with Landlock enabled (Linux 5.13), or run it as another user"
        case .callFilter: "boot a kernel with seccomp filters, or run it as another user"
        case .ownProcess: "fetch with 'stagepack fetch', or run it as another user"
        }
    }

    private static func outcome(of error: ContainerError) -> Outcome {
        switch error {
        case .missing:
            (.containerUnusable, "run 'stagepack prefetch' first, or pass --container", .never)
        case .unknownFormat:
            (.containerUnusable, "use the version of stagepack that made it", .never)
        case .damagedRecord(let path, _):
            (.containerUnusable, hint(forDamagedRecord: path), .never)
        case .busy:
            (.inUse, "run it again when the other process has ended", .later)
        case .notStaged:
            (.notStaged, "run 'stagepack load' to fetch it", .later)
        case .otherVersion:
            (.notStaged, "run 'stagepack rollback' for the version before", .never)
        case .noPrevious:
            (.noPrevious, "run 'stagepack status' to see which packs have one", .never)
        case .pinned:
            (.pinned, pinHint, .never)
        case .file(let error):
            outcome(of: error)
        }
    }

    /// The one thing to do about a record that cannot be read.
    private static func hint(forDamagedRecord path: FilePath) -> String {
        // What a generation lacks is staged again; the container's own record is written by the next run.
        path.lastComponent == ContainerLayout.packRecord
            ? "run 'stagepack repair'" : "remove it, then run 'stagepack prefetch'"
    }

    private static func outcome(of error: FileError) -> Outcome {
        if error.isOutOfSpace {
            return (.noSpace, "free some space, or run 'stagepack gc'", .later)
        }
        if error.isRefusedByLimit {
            return (.systemShortage, SystemShortage.limitHint, .later)
        }
        return (.containerUnusable, hint(for: error), .later)
    }

    private static func hint(for error: FileError) -> String? {
        switch error.errno {
        case _ where error.isNotRegularFile:
            "remove it, and run it again"
        case .permissionDenied, .notPermitted:
            "run it as the user that owns the container, or pass --container"
        case .readOnlyFileSystem:
            "make the file system writable, or pass --container"
        default:
            nil
        }
    }
}

extension ExtensionError {
    /// The one thing to do about it; policies decide meanwhile.
    fileprivate var hint: String {
        switch self {
        case .notConfined(_, let restrictions) where restrictions.files:
            "run it on a kernel, or in a container, that allows seccomp filters; "
                + "the policies of the manifest decided"
        case .notConfined:
            "add 'landlock' to the kernel's parameter 'lsm=' (Linux 5.13); "
                + "the policies of the manifest decided"
        default:
            "tell the application's packager; the policies of the manifest decided"
        }
    }
}
