public import StageModel

/// The reason why a file of a repository is not trusted.
///
/// Numbers are sections of the specification of The Update Framework, version 1.0.34.
@nonexhaustive
public indirect enum TrustError: Error, Equatable, Sendable {
    /// The metadata is not JSON, or a member violates the format (section 4).
    case malformed(RoleName, ManifestError)
    /// Fewer keys than needed signed the metadata (5.3.4, 5.4.2, 5.5.3, 5.6.3).
    case unsigned(RoleName, version: Int, SignatureShortage)
    /// The metadata expired at or before the reference time of the refresh, so that it may be an old
    /// copy (5.3.10, 5.4.4, 5.5.6, 5.6.5).
    case expired(RoleName, version: Int, expiry: MetadataTime, time: MetadataTime)
    /// The version is not the requested one (5.3.5, 5.5.4, 5.6.4).
    case wrongVersion(RoleName, expected: Int, found: Int)
    /// A version is lower than the one already trusted (5.4.3, 5.5.5); `lister` is the role whose
    /// metadata gives the version, which is the role itself for a timestamp.
    case rollback(RoleName, trusted: Int, found: Int, lister: RoleName)
    /// A snapshot no longer lists a file that the trusted one lists (5.5.5).
    case removed(file: String, version: Int)
    /// Metadata or a target exceeds its length limit, or does not match its signed description (5.5.2, 5.6.2,
    /// 5.7.3).
    ///
    /// The last value names the metadata that describes the content; it is `nil` for a file that is too long
    /// to be read.
    case wrongContent(String, ContentFault, describedBy: MetadataVersion?)
    /// The repository lacks a required file (5.4.1, 5.5.1, 5.6.1).
    case missing(RoleName, path: String)
    /// A delegated role is not listed in the snapshot (5.6.7).
    case unlisted(RoleName, delegator: RoleName)
    /// The search for a target reached the limit of visited roles (5.6.7.1).
    case tooManyRoles(target: String, limit: Int)
    /// No trusted role lists the target; the version is that of the top-level targets metadata (5.6.7).
    case unnamed(target: String, version: Int)
}

/// One version of a role's metadata.
public struct MetadataVersion: Hashable, Sendable {
    /// The role.
    public var role: RoleName
    /// The version in the metadata.
    public var version: Int

    /// Creates the name of a version.
    public init(role: RoleName, version: Int) {
        self.role = role
        self.version = version
    }
}

extension MetadataVersion: CustomStringConvertible {
    /// The version and the role, as a sentence fragment.
    public var description: String { "version \(version) of the \(role) metadata" }
}

/// The difference between content and its signed description.
@nonexhaustive
public enum ContentFault: Hashable, Sendable {
    /// The content exceeds the length limit.
    ///
    /// `found` is `nil` if reading stopped at the limit.
    case tooLong(limit: ByteCount, found: ByteCount?)
    /// The length differs.
    case length(expected: ByteCount, found: ByteCount)
    /// The digest by the named hash function differs.
    case digest(function: String, expected: String, found: String)
    /// The digests use only unsupported hash functions.
    case unknownHashFunctions([String])
}

/// The valid signatures of metadata, compared with the required ones.
public struct SignatureShortage: Hashable, Sendable {
    /// The role that determines the keys.
    public var delegator: RoleName
    /// The version of the delegator's metadata.
    public var delegatorVersion: Int
    /// The number of different keys with a valid signature.
    public var valid: Int
    /// The number of keys that must sign.
    public var threshold: Int
    /// The ids of listed keys that cannot be used, with the reasons.
    public var unusable: [String: String]

    /// Creates the comparison.
    public init(
        delegator: RoleName,
        delegatorVersion: Int,
        valid: Int,
        threshold: Int,
        unusable: [String: String]
    ) {
        self.delegator = delegator
        self.delegatorVersion = delegatorVersion
        self.valid = valid
        self.threshold = threshold
        self.unusable = unusable
    }
}

extension TrustError: CustomStringConvertible {
    /// A lower-case sentence fragment for people.
    public var description: String {
        switch self {
        case .malformed(let role, let fault):
            "the \(role) metadata cannot be read: \(fault)"
        case .unsigned(let role, let version, let shortage):
            "version \(version) of the \(role) metadata is not signed as version "
                + "\(shortage.delegatorVersion) of '\(shortage.delegator)' demands: \(shortage)"
        case .expired(let role, let version, let expiry, let time):
            "version \(version) of the \(role) metadata expired at \(expiry), "
                + "and the time is \(time): the repository was not renewed, "
                + "an old copy is served, or the clock is wrong"
        case .wrongVersion(let role, let expected, let found):
            "expected version \(expected) of the \(role) metadata, found version \(found)"
        case .rollback(let role, let trusted, let found, let lister):
            "the \(lister) metadata goes back from version \(trusted) to version \(found)"
                + (lister == role ? "" : " of the \(role) metadata")
        case .removed(let file, let version):
            "version \(version) of the snapshot metadata no longer lists '\(file.forDisplay())'"
        case .wrongContent(let name, let fault, let metadata?):
            "'\(name.forDisplay())' is not what \(metadata) describes: \(fault)"
        case .wrongContent(let name, let fault, nil):
            "'\(name.forDisplay())' is too long: \(fault)"
        case .missing(let role, let path):
            "the repository does not have '\(path.forDisplay())', the \(role) metadata"
        case .unlisted(let role, let delegator):
            "'\(delegator)' delegates to '\(role)', which the snapshot metadata does not list"
        case .tooManyRoles(let target, let limit):
            "'\(target.forDisplay())' is not in the first \(limit.quantity(of: "role")) that may list it"
        case .unnamed(let target, let version):
            "version \(version) of the targets metadata does not list '\(target.forDisplay())'"
        }
    }
}

extension ContentFault: CustomStringConvertible {
    /// The difference, as a sentence fragment.
    public var description: String {
        switch self {
        case .tooLong(let limit, let found):
            "expected at most \(limit.rawValue.quantity(of: "byte")), found "
                + (found.map { "\($0.rawValue)" } ?? "more")
        case .length(let expected, let found):
            "expected \(expected.rawValue.quantity(of: "byte")), found \(found.rawValue)"
        case .digest(let function, let expected, let found):
            "expected \(function) \(expected), found \(found)"
        case .unknownHashFunctions(let names):
            "expected a digest by sha256 or sha512, found only "
                + names.map { "'\($0.forDisplay(atMost: 20))'" }.joined(separator: ", ")
        }
    }
}

extension SignatureShortage: CustomStringConvertible {
    /// The counts and the unusable keys, as a sentence fragment.
    public var description: String {
        let counts = "expected valid signatures by \(threshold.quantity(of: "key")), found \(valid)"
        let faults = unusable.sorted { $0.key < $1.key }.prefix(4).map { id, reason in
            "; key \(id.forDisplay(atMost: 8)): \(reason)"
        }
        return counts + faults.joined()
    }
}
