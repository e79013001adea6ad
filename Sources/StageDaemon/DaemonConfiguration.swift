import FoundationEssentials
public import StageModel
public import SystemPackage

/// How a daemon works: what its configuration file may say, each member optional.
public struct DaemonConfiguration: Equatable, Sendable {
    /// How many transfers run at once.
    public var connections = 16
    /// How many connections one host gets.
    public var connectionsPerHost = 6
    /// How many bytes a second all downloads together may receive; `nil` stands for no limit.
    public var bandwidth: ByteCount?
    /// How many tasks of one user may be under way, or ended and not acknowledged.
    public var tasksPerUser = 200_000
    /// The most bytes of files that the daemon keeps for one user, the daemon's own included: partial and
    /// finished downloads that were not moved away, and copies of files to upload.
    ///
    /// `nil` stands for the default: no limit for the user that the daemon runs as; for each other user a
    /// quarter of the file system, and no more than what is left free for the rest.
    public var bytesPerUser: ByteCount?
    /// The most bytes that sessions, tasks and events of one user may have in the journal.
    public var journalPerUser = ByteCount.mebibytes(128)
    /// The bytes that stay free on the disk.
    public var reserve = ByteCount.mebibytes(64)
    /// The longest time, in seconds, that a discretionary task waits for its slot.
    public var discretionaryWindow = 600.0
    /// The delay after a launch of a handler, in seconds; it doubles with each further one.
    public var relaunchDelay = 60.0
    /// How long a launched handler may take, in seconds, unless it asks for more.
    public var launchLease = 600.0
    /// Names of system users that may have handlers, as other users do.
    public var handlerUsers: [String] = []
    /// The first wait after an attempt that failed stays below this, in seconds.
    public var retryBase = 2.0
    /// The file of certificate authorities to trust instead of the system's.
    public var certificateAuthorities: String?
    /// The proxy for http URLs, as libcurl takes it.
    public var httpProxy: String?
    /// The proxy for https URLs, as libcurl takes it.
    public var httpsProxy: String?
    /// The hosts that are reached without a proxy, separated by commas.
    public var proxyExceptions = ""
    /// How long, in seconds, a network must stay good before transfers go on; its loss counts at once.
    public var settlingTime = 5.0
    /// The conditions of network and power for stagings that no person waits for, in the place of those of the
    /// application's registration; `nil` leaves it to that.
    public var updateConditions: UpdateConditions?
    /// The address of the bus where NetworkManager and UPower are; `nil` stands for the system's.
    public var busAddress: String?

    /// Creates the configuration of a daemon that nobody has configured.
    public init() {}

    /// Reads the configuration in a file.
    ///
    /// - Throws: ``DaemonError/configuration(_:_:)`` if it cannot be read, is no JSON object, or has a
    ///   member that is unknown or out of range.
    public init(contentsOf path: FilePath) throws(DaemonError) {
        let data: Data
        do {
            data = try Data(contentsOf: URL(filePath: path.string))
        } catch {
            throw .configuration(path, "it cannot be read")
        }
        do {
            let names = try JSONDecoder().decode([String: Anything].self, from: data).keys
            if let unknown = names.first(where: { CodingKeys(stringValue: $0) == nil }) {
                throw DaemonError.configuration(path, "there is no setting '\(unknown)'")
            }
            let nested = try JSONDecoder().decode(NestedNames.self, from: data)
                .updateConditions?.keys.first { !UpdateConditions.members.contains($0) }
            if let nested {
                throw DaemonError.configuration(
                    path,
                    "there is no setting 'updateConditions.\(nested)'"
                )
            }
            self = try JSONDecoder().decode(DaemonConfiguration.self, from: data)
        } catch let error as DaemonError {
            throw error
        } catch let error as DecodingError {
            throw .configuration(path, error.fragment)
        } catch {
            throw .configuration(path, "\(error)")
        }
        if let fault { throw .configuration(path, fault) }
    }

    /// What is out of range, if anything is.
    private var fault: String? {
        let positive = [
            ("connections", Double(connections)),
            ("connectionsPerHost", Double(connectionsPerHost)),
            ("tasksPerUser", Double(tasksPerUser)),
            ("launchLease", launchLease),
            ("journalPerUser", Double(journalPerUser.rawValue)),
        ]
        if let (name, value) = positive.first(where: { $0.1 <= 0 }) {
            return "'\(name)': expected a positive number, found \(value)"
        }
        let others = [
            ("discretionaryWindow", discretionaryWindow), ("relaunchDelay", relaunchDelay),
            ("retryBase", retryBase), ("settlingTime", settlingTime),
        ]
        if let (name, value) = others.first(where: { $0.1 < 0 }) {
            return "'\(name)': expected no negative number, found \(value)"
        }
        if let (name, _) = (positive + others).first(where: { $0.1 > 1e9 }) {
            return "'\(name)': expected at most 1000000000"
        }
        return connections <= 256 ? nil : "'connections': expected at most 256"
    }
}

extension DaemonConfiguration: Decodable {
    private enum CodingKeys: String, CodingKey {
        case connections, connectionsPerHost, bandwidth, tasksPerUser, bytesPerUser, reserve
        case journalPerUser
        case discretionaryWindow, relaunchDelay, launchLease, retryBase, certificateAuthorities
        case httpProxy, httpsProxy, proxyExceptions, settlingTime, busAddress, handlerUsers
        case updateConditions
    }

    /// Decodes a configuration; what is not there has its default.
    public init(from decoder: any Decoder) throws {
        let members = try decoder.container(keyedBy: CodingKeys.self)
        func read<Value: Decodable>(_ key: CodingKeys, _ value: inout Value) throws {
            value = try members.decodeIfPresent(Value.self, forKey: key) ?? value
        }
        self.init()
        try read(.connections, &connections)
        try read(.connectionsPerHost, &connectionsPerHost)
        bandwidth = try members.decodeIfPresent(ByteCount.self, forKey: .bandwidth)
        try read(.tasksPerUser, &tasksPerUser)
        bytesPerUser = try members.decodeIfPresent(ByteCount.self, forKey: .bytesPerUser)
        try read(.journalPerUser, &journalPerUser)
        try read(.reserve, &reserve)
        try read(.discretionaryWindow, &discretionaryWindow)
        try read(.relaunchDelay, &relaunchDelay)
        try read(.launchLease, &launchLease)
        try read(.handlerUsers, &handlerUsers)
        try read(.retryBase, &retryBase)
        certificateAuthorities = try members.decodeIfPresent(
            String.self,
            forKey: .certificateAuthorities
        )
        httpProxy = try members.decodeIfPresent(String.self, forKey: .httpProxy)
        httpsProxy = try members.decodeIfPresent(String.self, forKey: .httpsProxy)
        try read(.proxyExceptions, &proxyExceptions)
        try read(.settlingTime, &settlingTime)
        busAddress = try members.decodeIfPresent(String.self, forKey: .busAddress)
        updateConditions = try members.decodeIfPresent(
            UpdateConditions.self,
            forKey: .updateConditions
        )
    }
}

/// The members of objects within the configuration.
private struct NestedNames: Decodable {
    var updateConditions: [String: Anything]?
}

/// A JSON value that does not matter.
private struct Anything: Decodable {
    init(from decoder: any Decoder) throws {}
}

extension DecodingError {
    /// Where it went wrong and why, in words for a person.
    var fragment: String {
        switch self {
        case .typeMismatch(_, let context), .valueNotFound(_, let context),
            .keyNotFound(_, let context), .dataCorrupted(let context):
            let path = context.codingPath.map { key in
                key.intValue.map { "[\($0)]" } ?? ".\(key.stringValue)"
            }
            .joined()
            return path.isEmpty
                ? "expected JSON: \(context.debugDescription)"
                : "'\(path.drop { $0 == "." })': \(context.debugDescription)"
        @unknown default:
            return "\(self)"
        }
    }
}
