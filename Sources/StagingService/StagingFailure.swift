public import StageEngine
public import StageExtension
public import StageModel
public import SystemPackage

/// The reason why staging a pack or a file failed, or the whole run.
@nonexhaustive
public indirect enum StagingFailure: Error, Equatable, Sendable {
    /// A failure to download, verify, unpack or publish; `about` is its object, unless the error names it.
    case engine(StageError, about: Subject?)
    /// The plan refuses the pack or file.
    case refusal(Plan.Refusal, of: Subject)
    /// The application's downloader extension failed; policies decided instead.
    case downloaderExtension(ExtensionError)
    /// A registration that cannot be read or is not valid; the message is a fragment that names the file, which is `file` if
    /// the registration is in effect on this machine.
    case registration(String, file: FilePath? = nil)
    /// An application without a registration; the message is a fragment that names the application.
    case notRegistered(String)
    /// The registration of the application was changed or removed while the run was in progress.
    case registrationChanged(ApplicationID)
    /// A manifest, pack or file is not in the container, and network access is disabled; the message is a
    /// fragment that names it.
    case offline(String)
    /// Neither the request nor the container names a manifest.
    case noManifest
    /// The request cannot be carried out; the message is a fragment that says why.
    case invalidRequest(String)

    /// The deadline of the request has passed: the object, its bytes that are on this machine, the URL that they
    /// came from, and the reason why the latest request failed, if no bytes have arrived since then.
    case deadline(
        about: Subject?,
        received: Received? = nil,
        from: String? = nil,
        lastFailure: String? = nil
    )

    /// The description for records and for messages to other processes, whose readers limit its length, and the combining
    /// characters in a row.
    package var shortDescription: String {
        let text = description.unicodeScalars
        let start = text.prefix(1000)
        let isWhole = start.endIndex == text.endIndex
        return CombiningSequence.shortened(String(start)) + (isWhole ? "" : "…")
    }

    /// Number of received bytes and their expected total.
    public struct Received: Equatable, Sendable {
        /// The received bytes, with those of earlier runs.
        public var count: ByteCount
        /// The expected total.
        public var size: ByteCount
    }

    /// The object of a failure.
    @nonexhaustive
    public enum Subject: Equatable, Sendable, CustomStringConvertible {
        /// A pack.
        case pack(PackID)
        /// A file that a downloader extension requested, by its identifier.
        case file(String)
        /// The manifest at a URL.
        case manifest(url: String)
        /// The application's downloader extension.
        case downloaderExtension

        /// The object in a form for people.
        public var description: String {
            switch self {
            case .pack(let id): "pack '\(id)'"
            case .file(let identifier): "file '\(identifier.forDisplay())'"
            case .manifest(let url): "the manifest at '\(url.forDisplay())'"
            case .downloaderExtension: "the downloader extension"
            }
        }
    }

    /// The kinds of failure, in the order in which a run encounters them.
    @nonexhaustive
    public enum Kind: String, Codable, Sendable, CaseIterable {
        /// Downloading the manifest failed.
        case manifestUnavailable
        /// The manifest or the registration is not valid.
        case manifestInvalid
        /// The manifest is valid, but not accepted.
        case manifestRefused
        /// The keys of the application's root did not sign the manifest, or the signed metadata has expired.
        case manifestUntrusted
        /// The manifest has no such pack.
        case unknownPack
        /// The registration's restrictions forbid the download before the first launch.
        case restricted
        /// The application's downloader extension failed.
        case extensionFailed
        /// The pack has no such file.
        case unknownFile
        /// The connection failed, the server did not answer or was overloaded, or the answer was cut off.
        case transferFailed
        /// A server refused the request, or the file of a file URL cannot be read.
        case transferRefused
        /// The digest of the received content differs from the one in the manifest.
        case digestMismatch
        /// The network demands a login first (captive portal).
        case captivePortal
        /// An archive is damaged, or contains entries that a pack may not have.
        case contentRefused
        /// The file system or the quota of the container has no space left.
        case noSpace
        /// The container cannot be read or written.
        case containerUnusable
        /// Another process uses the container or pack.
        case inUse
        /// The pack is pinned.
        case pinned
        /// The pack is not staged.
        case notStaged
        /// No earlier generation exists to which the pack could be rolled back.
        case noPrevious
        /// The request is not valid.
        case invalidRequest
        /// The system refuses threads, processes, open files or memory.
        case systemShortage
        /// The request disables network access.
        case offline
        /// The deadline of the request has passed.
        case deadlineExceeded
        /// The registration of the application was changed or removed while the run was in progress.
        case registrationChanged
        /// The Swift task was cancelled, or a person cancelled the daemon's task.
        case interrupted
    }
}

extension StagingFailure: CustomStringConvertible {
    /// The failure and its object, as a fragment.
    public var description: String {
        switch self {
        case .engine(let error, .none), .engine(let error, .manifest):
            error.description
        case .engine(let error, let subject?):
            "\(subject): \(error)"
        case .refusal(.noSpace(let needed, let available), let subject):
            "\(subject): \(StageError.noSpace(needed: needed, available: available))"
        case .refusal(.noInodes(let needed, let available), let subject):
            "\(subject): \(StageError.noInodes(needed: needed, available: available))"
        case .refusal(.exceedsAllowance(let allowance, let needed, let remaining), let subject):
            "\(subject): '\(allowance.rawValue)' of the registration leaves \(remaining), and it takes "
                + "\(needed)"
        case .refusal(.disallowedDomain(let hosts), let subject):
            "\(subject): 'downloadDomainAllowList' of the registration does not have "
                + hosts.map { "'\($0.forDisplay())'" }.joined(separator: ", ")
        case .refusal(.exceedsQuota(let needed, let remaining), let subject):
            "\(subject): the quota of the container leaves \(max(remaining, .zero)), and it takes "
                + "\(needed)"
        case .refusal(.otherVersion(let required, let installed), let subject):
            "\(subject): it requires application version '\(required)', found '\(installed)'"
        case .refusal(.pinned(let pin), let subject):
            "\(subject): it is \(pin)"
        case .downloaderExtension(.cancelled): StageError.cancelled.description
        case .downloaderExtension(let error): error.description
        case .registration(let message, _), .notRegistered(let message),
            .invalidRequest(let message):
            message
        case .registrationChanged(let application):
            "application '\(application)': its registration was changed or removed during the run"
        case .offline(let message): "\(message), and the network may not be used"
        case .noManifest: "neither the options nor the container name a manifest"
        case .deadline(.manifest, _, _, let reason?):
            "the deadline passed, and the manifest is not available: \(reason)"
        case .deadline(.manifest(let url), _, _, nil):
            "the deadline passed while waiting for \(Subject.manifest(url: url))"
        case .deadline(let subject, _, _, let reason?):
            (subject.map { "\($0): " } ?? "") + "the deadline passed: \(reason)"
        case .deadline(let subject, let received, let source, nil):
            (subject.map { "\($0): " } ?? "") + "the deadline passed"
                + (received.map { ": \($0.count) of \($0.size) had arrived" } ?? "")
                + (source.map { " from '\($0.forDisplay())'" } ?? "")
        }
    }

    /// Returns the failure for a pack that no manifest has.
    ///
    /// A stored manifest, which is used after `problem`, does not show that the server's lacks the pack.
    static func unknownPack(_ id: PackID, after problem: StagingFailure?) -> StagingFailure {
        guard case .engine(let error, _)? = problem else {
            return StagingFailure(StageError.unknownPack(id))
        }
        return .engine(error, about: .pack(id))
    }

    /// The manifest that the run waited for, if the description does not name it.
    public var requestedManifest: Subject? {
        if case .engine(_, .manifest(let url)) = self { .manifest(url: url) } else { nil }
    }
}

extension Planner.PinnedVersion: CustomStringConvertible {
    /// The pinned version, as a fragment.
    public var description: String {
        let rollback = rolledBackFrom.map { ", rolled back from version \($0)" } ?? ""
        return "pinned to version \(version)\(rollback)"
    }
}
