import Glibc
import StageArchive
import StageContainer
import StageEngine
import StageExtension
import StageModel
public import StagePack
import StageSystem
import StageTransfer
import StageTrust
import SystemPackage

// The only place that maps errors to kinds, advice and retry times. The switches have no default for errors,
// so that a new case of an error does not compile here.

extension StagingFailure {
    /// The kind of failure.
    public var kind: Kind { outcome.kind }
    /// The recommended action, if there is one.
    public var advice: StagingAdvice? { outcome.advice }
    /// The condition under which another attempt can succeed.
    public var retryAdvice: RetryAdvice { outcome.retryAdvice }

    /// The retry delay that the server asked for, if any.
    public var retryAfter: Duration? {
        switch self {
        case .engine(.transfer(.refused(_, _, let pause)), _),
            .engine(.manifestUnavailable(.refused(_, _, let pause)), _):
            pause
        default: nil
        }
    }

    private typealias Outcome = (kind: Kind, advice: StagingAdvice?, retryAdvice: RetryAdvice)

    private var outcome: Outcome {
        switch self {
        case .engine(let error, _): Self.outcome(of: error)
        case .refusal(let refusal, _): Self.outcome(of: refusal)
        case .downloaderExtension(.cancelled): Self.outcome(of: StageError.cancelled)
        case .downloaderExtension(let error): (.extensionFailed, error.advice, .later)
        case .registration: (.manifestInvalid, .correctRegistration, .never)
        case .notRegistered: (.manifestInvalid, .installApplication, .never)
        case .registrationChanged: (.registrationChanged, .runAgain, .now)
        case .offline: (.offline, .goOnline, .later)
        case .noManifest: (.invalidRequest, .nameManifest, .never)
        case .invalidRequest: (.invalidRequest, nil, .never)
        case .deadline(_, _, _, nil): (.deadlineExceeded, .runAgain, .now)
        case .deadline: (.deadlineExceeded, .checkNetwork, .now)
        }
    }

    private static func outcome(of refusal: Plan.Refusal) -> Outcome {
        switch refusal {
        case .noSpace: (.noSpace, .freeSpace, .later)
        case .noInodes: (.noSpace, .freeInodes, .later)
        case .exceedsAllowance: (.restricted, .startApplication, .later)
        case .disallowedDomain: (.restricted, .tellPackagerOfHost, .later)
        case .exceedsQuota: (.noSpace, .raiseQuota, .later)
        case .otherVersion: (.manifestRefused, .updateApplication, .never)
        case .pinned: (.pinned, .releasePin, .never)
        }
    }

    private static func outcome(of error: StageError) -> Outcome {
        switch error {
        case .manifestUnavailable(let error): manifestOutcome(of: error)
        case .manifestInvalid(_, .unknownVersion): (.manifestInvalid, .updateStagePack, .never)
        case .manifestInvalid: (.manifestInvalid, .checkManifest, .never)
        // The publisher will replace an outdated copy on the server.
        case .manifestRefused(_, .wentBack(_, _)):
            (.manifestRefused, .tellPublisherOfRevision, .later)
        case .manifestRefused(_, let refusal): (.manifestRefused, advice(for: refusal), .never)
        case .untrusted(_, .expired(_, _, _, _)): (.manifestUntrusted, .renewMetadata, .later)
        case .untrusted(_, .unsigned(_, _, _)): (.manifestUntrusted, .compareRoot, .later)
        case .untrusted: (.manifestUntrusted, .distrustServer, .later)
        case .storedUntrusted: (.manifestUntrusted, .fetchManifestAnew, .later)
        case .unknownPack: (.unknownPack, .listPacks, .never)
        case .noSpace: (.noSpace, .freeSpace, .later)
        case .noInodes: (.noSpace, .freeInodes, .later)
        case .noMemory: (.systemShortage, .raiseLimits, .later)
        case .transfer(let error): outcome(of: error)
        case .content(let error): outcome(of: error)
        case .noSuchFile(_, let fault): outcome(of: fault)
        case .index: (.contentRefused, .tellPublisherOfIndex, .never)
        case .incompleteContent: (.contentRefused, .tellPublisherOfFigures, .never)
        case .container(let error): outcome(of: error)
        case .cancelled: (.interrupted, .runAgain, .now)
        }
    }

    private static func outcome(of fault: FileFault) -> Outcome {
        switch fault {
        case .isMissing: (.unknownFile, .listFiles, .never)
        case .isDirectory: (.invalidRequest, .nameFileInDirectory, .never)
        case .packHasNoIndex: (.invalidRequest, .loadWholePack, .never)
        case .isForOtherVersion: (.manifestRefused, .updateApplication, .never)
        }
    }

    private static func manifestOutcome(of error: TransferError) -> Outcome {
        let outcome = outcome(of: error)
        return switch error {
        case .captivePortal, .outOfSpace, .cancelled: outcome
        case .refused(_, 404, _), .refused(_, 410, _):
            (.manifestUnavailable, .checkManifestURL, outcome.retryAdvice)
        case .unacceptable(_, .file(let error)) where error.isNotRegularFile:
            (.manifestUnavailable, .nameManifestFile, .never)
        // Metadata and packs have other limits.
        case .unacceptable(_, .size(let limit)) where limit == ByteCount(ManifestLimits.byteCount):
            (.manifestUnavailable, .tellPublisherOfManifestSize, outcome.retryAdvice)
        default: (.manifestUnavailable, outcome.advice, outcome.retryAdvice)
        }
    }

    private static func advice(for refusal: ManifestRefusal) -> StagingAdvice {
        switch refusal {
        case .insecure: .serveSecurely
        case .unsigned: .nameRoot
        case .unsignedPack: .separatePacks
        case .otherRoot: .useRegisteredRoot
        case .unusableRegistration: .correctRegistration
        case .localContent: .tellPublisherOfLocalFiles
        case .wentBack: .tellPublisherOfRevision
        case .otherApplication: .correctApplication
        case .otherVersion: .updateApplication
        }
    }

    private static func outcome(of error: TransferError) -> Outcome {
        switch error {
        case .unreachable(_, .proxy, _): (.transferFailed, .checkProxy, .later)
        case .unreachable: (.transferFailed, .checkNetwork, .later)
        case .refused(_, let status, _) where ResponseSummary.isTransient(status):
            (.transferFailed, .runAgainLater, retryAdvice(after: error))
        case .refused(_, let status, _):
            (.transferRefused, advice(forStatus: status), retryAdvice(after: error))
        case .captivePortal: (.captivePortal, .logIn, .later)
        case .wrongSize, .wrongDigest: (.digestMismatch, .tellPublisherOfOtherFile, .later)
        case .unacceptable(_, let reason):
            (.transferRefused, advice(for: reason), retryAdvice(after: error))
        case .untrusted(_, let fault, _): (.transferFailed, advice(for: fault), .later)
        case .outOfSpace(let path): (.noSpace, advice(forSpaceAt: path), .later)
        case .storage(let error): outcome(of: error)
        case .cancelled: outcome(of: StageError.cancelled)
        }
    }

    private static func retryAdvice(after error: TransferError) -> RetryAdvice {
        switch error.retryAdvice {
        case .soon: .now
        case .afterCorrection: .later
        case .never: .never
        }
    }

    private static func advice(forStatus status: Int) -> StagingAdvice {
        switch status {
        case 401, 403: .passCredentials
        case 404, 410: .tellPublisherOfMissingFile
        case 407: .passProxyCredentials
        case 500...: .runAgainLater
        default: .tellPublisherOfRefusal
        }
    }

    private static func advice(for reason: TransferError.Unacceptable) -> StagingAdvice? {
        switch reason {
        case .url, .host: .checkURL
        case .noMirror, .domain, .localAddress, .redirect, .redirects, .ranges, .size:
            .tellPublisherOfServer
        case .contentEncoding, .undecodable: .tellPublisherOfEncoding
        case .answer: .tellPublisherOfProtocol
        case .file(let error): advice(forPublished: error)
        case .request, .library: nil
        }
    }

    /// Returns the advice for a file that a file URL names: it belongs to the publisher, so it must not be removed.
    private static func advice(forPublished error: FileError) -> StagingAdvice? {
        switch error.errno {
        case _ where error.isNotRegularFile: .tellPublisherOfOtherFile
        case .noSuchFileOrDirectory, .notDirectory: .checkSourceFile
        case .permissionDenied, .notPermitted: .permitReading
        default: advice(for: error)
        }
    }

    private static func advice(for fault: TransferError.CertificateFault) -> StagingAdvice {
        switch fault {
        case .notYetValid, .expired: .checkClock
        case .unknownAuthority, .unloadableAuthorities, .unverified: .passAuthority
        case .otherHost: .tellPublisherOfServer
        }
    }

    private static func outcome(of error: ArchiveError) -> Outcome {
        switch error {
        case .fileSystem(let error): outcome(of: error)
        case .interrupted: (.contentRefused, .runAgainThenTellPublisher, .later)
        case .notConfined(.landlock): (.containerUnusable, .enableLandlock, .never)
        case .notConfined(.callFilter): (.containerUnusable, .enableCallFilters, .never)
        case .notConfined(.ownProcess): (.containerUnusable, .decodeInProcess, .never)
        case .cancelled: outcome(of: StageError.cancelled)
        case .tooManyEntries, .tooLarge: (.contentRefused, .tellPublisherOfFigures, .never)
        case .wrongFormat, .damaged, .notAllowed, .collision:
            (.contentRefused, .tellPublisherToPackage, .never)
        }
    }

    private static func outcome(of error: ContainerError) -> Outcome {
        switch error {
        case .missing: (.containerUnusable, .prefetchFirst, .never)
        case .unknownFormat: (.containerUnusable, .useMakersVersion, .never)
        case .notAContainer: (.containerUnusable, .nameEmptyDirectory, .never)
        case .damagedRecord(let path, _):
            (.containerUnusable, advice(forDamagedRecord: path), .never)
        case .busy: (.inUse, .waitForProcess, .later)
        case .notStaged: (.notStaged, .load, .later)
        case .otherVersion: (.notStaged, nil, .never)
        case .noPrevious: (.noPrevious, .showStatus, .never)
        case .pinned: (.pinned, .releasePin, .never)
        case .file(let error): outcome(of: error)
        }
    }

    private static func advice(forDamagedRecord path: FilePath) -> StagingAdvice {
        // Staging again replaces the record of a generation; the next run rewrites the container's own record.
        if path.lastComponent == ContainerLayout.packRecord { return .repair }
        let isMissing =
            path.lastComponent == ContainerLayout.record && !FileStatus.exists(path)
        return isMissing ? .restoreRecord : .removeRecord
    }

    private static func outcome(of error: FileError) -> Outcome {
        if error.isOutOfSpace { return (.noSpace, advice(forSpaceAt: error.path), .later) }
        if error.isRefusedByLimit { return (.systemShortage, .raiseLimits, .later) }
        return (.containerUnusable, advice(for: error), .later)
    }

    private static func advice(forSpaceAt path: FilePath) -> StagingAdvice {
        path.lacksInodes ? .freeInodes : .freeSpace
    }

    private static func advice(for error: FileError) -> StagingAdvice? {
        switch error.errno {
        case _ where error.isNotRegularFile: .removeFile
        case .permissionDenied, .notPermitted:
            error.path.isInContainerOfThisUser ? .checkContainer : .runAsOwner
        case .readOnlyFileSystem: .makeWritable
        // In a container, another directory is no remedy for a file in the place of a directory.
        case .notDirectory: error.path.isInContainer ? nil : .nameDirectory
        default: nil
        }
    }
}

extension FilePath {
    /// `true` if the path is a container, or is in one.
    fileprivate var isInContainer: Bool {
        var path = self
        repeat {
            if ContainerLayout.isContainer(path) { return true }
        } while path.removeLastComponent()
        return false
    }

    /// `true` if a directory above the path is a container of this user, or a directory that this user owns and may not
    /// search.
    fileprivate var isInContainerOfThisUser: Bool {
        var path = self
        repeat {
            if let status = FileStatus(following: path), status.kind == .directory {
                let isSearchable = FileStatus.isExecutable(path)
                if !isSearchable || ContainerLayout.isContainer(path) {
                    return status.owner == geteuid()
                }
            }
        } while path.removeLastComponent()
        return false
    }
}

extension ExtensionError {
    /// The recommended action; policies decide meanwhile.
    fileprivate var advice: StagingAdvice {
        switch self {
        case .notConfined(_, let restrictions) where restrictions.files:
            .enableCallFiltersForExtensions
        case .notConfined: .enableLandlockForExtensions
        default: .tellPackagerOfExtension
        }
    }
}
