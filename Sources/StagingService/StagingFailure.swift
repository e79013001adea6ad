public import StageEngine
public import StageExtension
public import StageModel

/// The reason why a pack or a file could not be staged, or no pack could.
@nonexhaustive
public indirect enum StagingFailure: Error, Equatable, Sendable {
    /// A failure to fetch, check, unpack or publish, and what it is about, if the error does not say so.
    case engine(StageError, about: Subject?)
    /// The plan refuses it.
    case refusal(Plan.Refusal, of: Subject)
    /// The application's downloader extension did not do its part; policies decided.
    case downloaderExtension(ExtensionError)
    /// A registration that cannot be read or is not valid: a fragment that names the file.
    case registration(String)
    /// An application without a registration: a fragment that names the application.
    case notRegistered(String)
    /// A manifest, pack or file is not here, and the network is not to be used: a fragment that names it.
    case offline(String)
    /// Neither the request nor the container names a manifest.
    case noManifest
    /// The request cannot be carried out: a fragment that says why.
    case invalidRequest(String)

    /// The deadline of the request had passed: what it is about, how much of it had arrived, and the URL that it
    /// came from.
    case deadline(about: Subject?, received: Received?, from: String?)

    /// A part of what is received.
    public struct Received: Equatable, Sendable {
        /// The bytes that had arrived.
        public var count: ByteCount
        /// The bytes of the whole.
        public var size: ByteCount
    }

    /// The object of a failure.
    @nonexhaustive
    public enum Subject: Equatable, Sendable, CustomStringConvertible {
        /// A pack.
        case pack(PackID)
        /// A file that a downloader extension asked for, by its identifier.
        case file(String)
        /// The manifest at a URL.
        case manifest(url: String)
        /// The application's downloader extension.
        case downloaderExtension

        /// The subject as people read it.
        public var description: String {
            switch self {
            case .pack(let id): "pack '\(id)'"
            case .file(let identifier): "file '\(identifier.forDisplay())'"
            case .manifest(let url): "the manifest at '\(url.forDisplay())'"
            case .downloaderExtension: "the downloader extension"
            }
        }
    }

    /// The kinds of failure that there are, in the order in which a run meets them.
    @nonexhaustive
    public enum Kind: String, Codable, Sendable, CaseIterable {
        /// The manifest could not be had.
        case manifestUnavailable
        /// The manifest or the registration is not valid.
        case manifestInvalid
        /// The manifest is well formed and not accepted.
        case manifestRefused
        /// The manifest is not what the keys of its application's root have signed, or that has expired.
        case manifestUntrusted
        /// The manifest has no such pack.
        case unknownPack
        /// The registration's restrictions do not allow it before the first launch.
        case restricted
        /// The application's downloader extension did not do its part.
        case extensionFailed
        /// The pack has no such file.
        case unknownFile
        /// There was no connection, no answer, or no end of it.
        case transferFailed
        /// A server answered that it does not give it.
        case transferRefused
        /// The received content is not the one that the manifest names.
        case digestMismatch
        /// The network wants its user to log in first.
        case captivePortal
        /// An archive is damaged or holds what a pack may not hold.
        case contentRefused
        /// There is no room on the file system, or in the quota of the container.
        case noSpace
        /// The container cannot be read or written.
        case containerUnusable
        /// Another process works on it.
        case inUse
        /// It is pinned.
        case pinned
        /// It is not staged.
        case notStaged
        /// There is no generation that a pack could be rolled back to.
        case noPrevious
        /// The request cannot be carried out as it is.
        case invalidRequest
        /// The system refuses threads, processes, open files or memory.
        case systemShortage
        /// The network is not to be used.
        case offline
        /// The deadline of the request had passed.
        case deadlineExceeded
        /// The task was cancelled, or the daemon's by a person.
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
        case .registration(let message), .notRegistered(let message), .invalidRequest(let message):
            message
        case .offline(let message): "\(message), and the network is not to be used"
        case .noManifest: "nothing says where the packs are"
        case .deadline(.manifest(let url), _, _):
            "the deadline passed while waiting for \(Subject.manifest(url: url))"
        case .deadline(let subject, let received, let source):
            (subject.map { "\($0): " } ?? "") + "the deadline passed"
                + (received.map { ": \($0.count) of \($0.size) had arrived" } ?? "")
                + (source.map { " from '\($0.forDisplay())'" } ?? "")
        }
    }

    /// The server that was waited for, if the description does not name it.
    public var place: Subject? {
        if case .engine(_, .manifest(let url)) = self { .manifest(url: url) } else { nil }
    }
}

extension Planner.PinnedVersion: CustomStringConvertible {
    /// The version that holds the pack, as a fragment.
    public var description: String {
        let rollback = rolledBackFrom.map { ", rolled back from version \($0)" } ?? ""
        return "pinned to version \(version)\(rollback)"
    }
}
