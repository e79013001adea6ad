import FoundationEssentials
package import StageModel
import StageSystem
package import SystemPackage

/// Configuration of a daemon, read from a JSON file whose members are all optional.
package struct DaemonConfiguration: Equatable, Sendable {
    /// Maximum number of concurrent transfers.
    package var connections = 16
    /// Maximum number of connections to one host.
    package var connectionsPerHost = 6
    /// Maximum total download rate in bytes per second; `nil` for no limit.
    package var bandwidth: ByteCount?
    /// Maximum number of a user's tasks that are unfinished, or finished and not acknowledged.
    package var tasksPerUser = 200_000
    /// Maximum bytes of files kept for one user: partial downloads, finished downloads that were not moved away, and
    /// copies of files to upload.
    ///
    /// `nil` selects the default: no limit for the user that the daemon runs as; for each other user a quarter of the
    /// file system, but no more than the free space that is left for the other users.
    package var bytesPerUser: ByteCount?
    /// Maximum bytes of a user's sessions, tasks and events in the journal.
    package var journalPerUser = ByteCount.mebibytes(128)
    /// Bytes of the disk that stay free.
    package var reserve = ByteCount.mebibytes(64)
    /// Maximum delay in seconds that spreads the start of discretionary tasks.
    package var discretionaryWindow = 600.0
    /// Delay in seconds after a handler's first launch; each further launch doubles it.
    package var relaunchDelay = 60.0
    /// Time limit in seconds of a launched handler, unless it asks for an extension.
    package var launchLease = 600.0
    /// Names of system users that may have handlers; regular users always may.
    package var handlerUsers: [String] = []
    /// Upper bound in seconds of the first delay after a failed attempt.
    package var retryBase = 2.0
    /// File with the certificate authorities to trust instead of the system's.
    package var certificateAuthorities: String?
    /// Proxy for http URLs, in libcurl's syntax.
    package var httpProxy: String?
    /// Proxy for https URLs, in libcurl's syntax.
    package var httpsProxy: String?
    /// Hosts to connect to without a proxy, separated by commas.
    package var proxyExceptions = ""
    /// Time in seconds for which network and power must permit transfers before these resume, and for which the network must
    /// not change before unreachable hosts are tried again; a lost network counts at once.
    package var settlingTime = 5.0
    /// Network and power conditions for automatic updates, overriding those of each application's registration; `nil`
    /// keeps the registration's.
    package var updateConditions: UpdateConditions?
    /// Address of the message bus with NetworkManager and UPower; `nil` for the system bus.
    package var busAddress: String?

    /// Creates the default configuration.
    package init() {}

    /// Reads a configuration file.
    ///
    /// - Throws: ``DaemonError/configuration(_:_:)`` if the file cannot be read, is not a JSON object, or has a
    ///   member that is unknown or out of range, if the certificate authorities cannot be read, or, for root, if other
    ///   users can change the file or that of the certificate authorities.
    package init(contentsOf path: FilePath) throws(DaemonError) {
        let bytes: [UInt8]
        var writer: String?
        do throws(FileError) {
            let file = try File.open(readingRegular: path)
            writer = Self.writer(of: path, try file.status())
            bytes = try file.readAll(limit: 1 << 20)
        } catch {
            let fault =
                error.isNotRegularFile
                ? "expected a regular file" : "it cannot be read: \(error.errno)"
            throw .configuration(path, fault)
        }
        // The file names the proxies and the certificate authorities for the requests of all users.
        if let writer { throw .configuration(path, writer) }
        try self.init(json: bytes, path: path)
        guard let certificateAuthorities else { return }
        let authorities = FilePath(certificateAuthorities)
        do throws(FileError) {
            let file = try File.open(readingRegular: authorities)
            writer = Self.writer(of: authorities, try file.status())
        } catch {
            throw .configuration(path, "'certificateAuthorities': \(error)")
        }
        if let writer {
            throw .configuration(
                path,
                "'certificateAuthorities': '\(certificateAuthorities.forDisplay())': \(writer)"
            )
        }
    }

    /// Returns why other users can change a file, and the commands against it; `nil` for daemons of other users than root,
    /// or if they cannot.
    private static func writer(of path: FilePath, _ status: FileStatus) -> String? {
        guard UserIdentity.current.user == 0, let reason = status.foreignWriter else { return nil }
        return "\(reason): run '\(status.commandsForOwner(of: path))'"
    }

    /// Parses the content of the configuration file at `path`.
    ///
    /// Does not look at the files that it names.
    package init(json: [UInt8], path: FilePath) throws(DaemonError) {
        let unknown: String?
        do throws(ManifestError) {
            // The decoder below accepts more than JSON, and names no line.
            unknown = try Self.unknownSetting(in: try JSONNode(json: json))
        } catch {
            throw .configuration(path, "\(error)")
        }
        if let unknown { throw .configuration(path, "there is no setting \(unknown)") }
        do {
            self = try JSONDecoder().decode(DaemonConfiguration.self, from: Data(json))
        } catch let error as DecodingError {
            throw .configuration(path, error.text(in: json))
        } catch {
            throw .configuration(path, "\(error)")
        }
        if let fault { throw .configuration(path, fault) }
    }

    /// Returns the first member that is no setting, with the similar setting; `nil` if all are settings.
    private static func unknownSetting(in document: JSONNode) throws(ManifestError) -> String? {
        let known = CodingKeys.allCases.map(\.stringValue)
        for member in try document.members() {
            guard known.contains(member.name) else {
                let similar = member.name.mostSimilar(in: known)
                let question = similar.map { "; did you mean '\($0)'?" } ?? ""
                return "'\(member.name.forDisplay())'\(question)"
            }
            guard member.name == CodingKeys.updateConditions.stringValue else { continue }
            let names = member.node.value.members.map(\.name)
            if let nested = names.first(where: { !UpdateConditions.members.contains($0) }) {
                return "'\(member.name).\(nested.forDisplay())'"
            }
        }
        return nil
    }

    /// Description of the first member that is out of range, and the remedy; `nil` if all are valid.
    private var fault: String? {
        if let path = certificateAuthorities, !FilePath(path).isAbsolute {
            return
                "'certificateAuthorities': expected an absolute path, found '\(path.forDisplay())'"
        }
        for (name, proxy) in [("httpProxy", httpProxy), ("httpsProxy", httpsProxy)] {
            do throws(ValueError) {
                try ProxyAddress.check(proxy ?? "")
            } catch {
                return "'\(name)': \(error)"
            }
        }
        return numbers.lazy.compactMap(\.fault).first
    }

    /// Returns the names of the members that differ from the configuration at the start, and take effect only at the
    /// next start.
    ///
    /// Fewer connections take effect at once.
    package func membersForRestart(after start: DaemonConfiguration) -> [String] {
        let members: [(name: String, isForRestart: Bool)] = [
            ("connections", connections > start.connections),
            ("connectionsPerHost", connectionsPerHost > start.connectionsPerHost),
            ("bandwidth", bandwidth != start.bandwidth),
            ("retryBase", retryBase != start.retryBase),
            ("settlingTime", settlingTime != start.settlingTime),
            ("certificateAuthorities", certificateAuthorities != start.certificateAuthorities),
            ("httpProxy", httpProxy != start.httpProxy),
            ("httpsProxy", httpsProxy != start.httpsProxy),
            ("proxyExceptions", proxyExceptions != start.proxyExceptions),
            ("busAddress", busAddress != start.busAddress),
        ]
        return members.filter(\.isForRestart).map(\.name)
    }

    private var numbers: [BoundedNumber] {
        [
            BoundedNumber("connections", is: connections, limit: 256),
            BoundedNumber("connectionsPerHost", is: connectionsPerHost),
            BoundedNumber("tasksPerUser", is: tasksPerUser),
            BoundedNumber("journalPerUser", is: journalPerUser),
            BoundedNumber("bandwidth", is: bandwidth, remedy: "omit it for no limit"),
            BoundedNumber("bytesPerUser", is: bytesPerUser, remedy: "omit it for the default"),
            BoundedNumber("reserve", is: reserve, mayBeZero: true),
            BoundedNumber("launchLease", is: launchLease),
            BoundedNumber("discretionaryWindow", is: discretionaryWindow, mayBeZero: true),
            BoundedNumber("relaunchDelay", is: relaunchDelay, mayBeZero: true),
            BoundedNumber("retryBase", is: retryBase, mayBeZero: true),
            BoundedNumber("settlingTime", is: settlingTime, mayBeZero: true),
        ]
    }
}

/// A number of the configuration with its bounds.
private struct BoundedNumber {
    let name: String
    /// The value; `nil` if the member is missing.
    let value: Double?
    var mayBeZero = false
    let limit: Double
    /// Alternative to a value of zero, if there is one.
    var remedy: String?

    /// Upper bound of counts and seconds.
    private static let usualLimit = 1e9
    /// Upper bound of bytes, larger than any disk, so that sums do not overflow.
    private static let byteLimit = Double(1 << 50 as Int64)

    /// Creates a count.
    init(_ name: String, is value: Int, limit: Double = usualLimit) {
        (self.name, self.value, self.limit) = (name, Double(value), limit)
    }

    /// Creates a number of seconds.
    init(_ name: String, is value: Double, mayBeZero: Bool = false) {
        (self.name, self.value, self.mayBeZero) = (name, value, mayBeZero)
        limit = Self.usualLimit
    }

    /// Creates a number of bytes, or of bytes per second.
    init(_ name: String, is value: ByteCount?, mayBeZero: Bool = false, remedy: String? = nil) {
        (self.name, self.mayBeZero, self.remedy) = (name, mayBeZero, remedy)
        self.value = value.map { Double($0.rawValue) }
        limit = Self.byteLimit
    }

    /// Description of a value that is out of range, and the remedy; `nil` if it is valid.
    var fault: String? {
        guard let value else { return nil }
        let found = Int64(exactly: value).map { "\($0)" } ?? "\(value)"
        if value < 0, mayBeZero { return "'\(name)': expected no negative number, found \(found)" }
        if value <= 0, !mayBeZero {
            let advice = remedy.map { ": \($0)" } ?? ""
            return "'\(name)': expected a positive number, found \(found)\(advice)"
        }
        return value > limit
            ? "'\(name)': expected at most \(Int64(limit)), found \(found)" : nil
    }
}

extension DaemonConfiguration: Decodable {
    private enum CodingKeys: String, CodingKey, CaseIterable {
        case connections, connectionsPerHost, bandwidth, tasksPerUser, bytesPerUser, reserve
        case journalPerUser
        case discretionaryWindow, relaunchDelay, launchLease, retryBase, certificateAuthorities
        case httpProxy, httpsProxy, proxyExceptions, settlingTime, busAddress, handlerUsers
        case updateConditions
    }

    /// Decodes a configuration; missing members get their defaults.
    package init(from decoder: any Decoder) throws {
        let members = try decoder.container(keyedBy: CodingKeys.self)
        func read<Value: Decodable>(_ key: CodingKeys, into value: inout Value) throws {
            value = try members.decodeIfPresent(Value.self, forKey: key) ?? value
        }
        func count(_ key: CodingKeys) throws -> Int? {
            try members.decodeIfPresent(WholeNumber.self, forKey: key)?.value
        }
        func byteCount(_ key: CodingKeys) throws -> ByteCount? {
            guard let value = try count(key) else { return nil }
            guard value >= 0 else {
                throw DecodingError.dataCorruptedError(
                    forKey: key,
                    in: members,
                    debugDescription: "expected no negative number, found \(value)"
                )
            }
            return ByteCount(Int64(value))
        }
        self.init()
        connections = try count(.connections) ?? connections
        connectionsPerHost = try count(.connectionsPerHost) ?? connectionsPerHost
        bandwidth = try byteCount(.bandwidth)
        tasksPerUser = try count(.tasksPerUser) ?? tasksPerUser
        bytesPerUser = try byteCount(.bytesPerUser)
        journalPerUser = try byteCount(.journalPerUser) ?? journalPerUser
        reserve = try byteCount(.reserve) ?? reserve
        try read(.discretionaryWindow, into: &discretionaryWindow)
        try read(.relaunchDelay, into: &relaunchDelay)
        try read(.launchLease, into: &launchLease)
        try read(.handlerUsers, into: &handlerUsers)
        try read(.retryBase, into: &retryBase)
        certificateAuthorities = try members.decodeIfPresent(
            String.self,
            forKey: .certificateAuthorities
        )
        httpProxy = try members.decodeIfPresent(String.self, forKey: .httpProxy)
        httpsProxy = try members.decodeIfPresent(String.self, forKey: .httpsProxy)
        try read(.proxyExceptions, into: &proxyExceptions)
        try read(.settlingTime, into: &settlingTime)
        busAddress = try members.decodeIfPresent(String.self, forKey: .busAddress)
        updateConditions = try members.decodeIfPresent(
            UpdateConditions.self,
            forKey: .updateConditions
        )
    }
}

/// Whole number in the range of `Int`.
///
/// For other numbers, decoding an `Int` would report invalid JSON; this type reports the number.
private struct WholeNumber: Decodable {
    var value: Int

    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        let number = try container.decode(Double.self)
        guard let value = Int(exactly: number) else {
            throw DecodingError.dataCorruptedError(
                in: container,
                debugDescription: "expected a whole number, found \(number)"
            )
        }
        self.value = value
    }
}
