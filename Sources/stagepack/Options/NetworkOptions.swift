import ArgumentParser
import StageModel
import StagePack
import StageSystem
import StageTransfer
import SystemPackage

/// The options for transfers.
struct NetworkOptions: ParsableArguments {
    @Flag(
        name: .customLong("offline"),
        help: "Do not use the network. Also: STAGEPACK_OFFLINE=1."
    )
    var isOffline = false

    @Option(
        help: ArgumentHelp(
            "The maximum rate of all transfers together in bytes per second, as 500kB, 4MB or 4MiB.",
            valueName: "rate"
        ),
        transform: ByteRate.parse
    )
    var limitRate: ByteCount?

    @Option(
        help: ArgumentHelp(
            "The number of attempts at all mirrors, without new bytes, before giving up.",
            valueName: "count"
        )
    )
    var attempts: Int?

    @Option(
        help: ArgumentHelp(
            "The time limit in seconds for establishing a connection.",
            valueName: "seconds"
        )
    )
    var connectTimeout: Double?

    @Option(
        help: ArgumentHelp(
            "A file of certificate authorities to trust instead of the system's. "
                + "Also: CURL_CA_BUNDLE, SSL_CERT_FILE.",
            valueName: "file"
        ),
        completion: .file(),
        transform: { FilePath($0) }
    )
    var cacert: FilePath?

    @Option(
        help: ArgumentHelp("A netrc(5) file with user names and passwords.", valueName: "file"),
        completion: .file(),
        transform: { FilePath($0) }
    )
    var netrcFile: FilePath?

    @Option(
        help: ArgumentHelp(
            "The file with the bearer token for a host, as cdn.example.org=token.txt.",
            valueName: "host=file"
        )
    )
    var tokenFile: [String] = []

    mutating func validate() throws {
        if let attempts, attempts < 1 { throw ValidationError("--attempts takes 1 or more.") }
        if let connectTimeout, !(connectTimeout > 0 && connectTimeout <= 1e6) {
            throw ValidationError("--connect-timeout takes a number of seconds above 0.")
        }
    }

    /// Default number of attempts: since a person or a hook waits, a command gives up after at most about 14
    /// seconds, and the next run resumes.
    private static let defaultAttempts = 4

    /// Maximum retry delay that a server may ask for, since a person or a hook waits.
    private static let maximumRetryAfter = Duration.seconds(60)

    /// The options for the hook of a package manager: without a default route each request is tried once, unless
    /// `--attempts` says otherwise.
    ///
    /// A pause brings back no network that is not configured, and the hook would take it for each application.
    var forHook: Self {
        var options = self
        if attempts == nil, !NetworkRoute.hasDefault { options.attempts = 1 }
        return options
    }

    /// The options for access to servers, which further commands to the same servers need.
    var accessWords: [String] {
        var words: [String] = []
        if let cacert { words += ["--cacert", cacert.string] }
        if let netrcFile { words += ["--netrc-file", netrcFile.string] }
        for entry in tokenFile { words += ["--token-file", entry] }
        return words
    }

    /// Returns whether the environment disables network access.
    static func isOffline(_ environment: [String: String]) -> Bool {
        environment["STAGEPACK_OFFLINE"].map { !["", "0"].contains($0) } ?? false
    }

    /// Returns the configuration of transfers: options take precedence over the environment, and that over the
    /// configuration file.
    func configuration(
        _ environment: [String: String]
    ) throws(CommandFailure) -> TransferConfiguration {
        let settings = try SettingsFile.settings()
        if !isOffline, !Self.isOffline(environment) { try Self.checkProxies(environment) }
        var configuration = try optionsAlone()
        configuration.bandwidth = limitRate ?? settings.bandwidth
        configuration.proxies = ProxySettings(
            environment: environment,
            default: ProxySettings(settings)
        )
        configuration.certificateAuthorities = try authorities(environment, settings: settings)
        return configuration
    }

    /// Checks the proxies of the variables that have effect, as those of the configuration file are checked.
    private static func checkProxies(_ environment: [String: String]) throws(CommandFailure) {
        for names in ProxySettings.variables {
            guard let name = names.first(where: { environment[$0] != nil }),
                let proxy = environment[name]
            else { continue }
            do throws(ValueError) {
                try ProxyAddress.check(proxy)
            } catch {
                throw CommandFailure(
                    status: .configurationInvalid,
                    message: "variable \(name): \(error)",
                    hint: "correct it, or run 'unset \(name)'; the scheme is http, https, socks4, "
                        + "socks4a, socks5 or socks5h",
                    retryAdvice: .never
                )
            }
        }
    }

    /// Checks the files that the options name, for a command that may end before it uses the network.
    func checkFiles() throws(CommandFailure) {
        _ = try optionsAlone()
        if let cacert { _ = try Self.readable(cacert, option: "--cacert") }
    }

    /// Returns the configuration from the options without an alternative in the environment or the configuration file.
    private func optionsAlone() throws(CommandFailure) -> TransferConfiguration {
        var configuration = TransferConfiguration()
        configuration.userAgent = "stagepack/\(Version.text)"
        if let netrcFile {
            configuration.netrc = try Self.readable(netrcFile, option: "--netrc-file")
        }
        configuration.retry.maximumAttempts = attempts ?? Self.defaultAttempts
        configuration.retry.maximumRetryAfter = Self.maximumRetryAfter
        if let connectTimeout { configuration.connectTimeout = .seconds(connectTimeout) }
        for entry in tokenFile {
            let (host, token) = try Self.token(entry)
            configuration.bearerTokens[host] = token
        }
        return configuration
    }

    /// Returns the file with the trusted certificate authorities; `nil` for the system's.
    private func authorities(
        _ environment: [String: String],
        settings: CommandSettings
    ) throws(CommandFailure) -> FilePath? {
        if let cacert { return try Self.readable(cacert, option: "--cacert") }
        // A variable also applies to other commands, which may need no network, so its file is not checked
        // here.
        if let path = environment["CURL_CA_BUNDLE"] ?? environment["SSL_CERT_FILE"] {
            return FilePath(path)
        }
        return try SettingsFile.authorities(settings)
    }

    /// Returns the path of a file, after checking that it can be read.
    ///
    /// A missing file would count as empty: requests would be sent without a password, and be refused much
    /// later.
    private static func readable(
        _ path: FilePath,
        option: String
    ) throws(CommandFailure) -> FilePath {
        do throws(FileError) {
            _ = try File.open(readingRegular: path)
            return path
        } catch {
            throw .usage("\(option): \(error)")
        }
    }

    private static func token(_ entry: String) throws(CommandFailure) -> (String, BearerToken) {
        let parts = entry.split(separator: "=", maxSplits: 1).map(String.init)
        guard parts.count == 2 else {
            throw .usage("--token-file: expected host=file, found '\(entry.forDisplay())'")
        }
        let text: String
        do {
            let bytes = try File.open(reading: FilePath(parts[1])).readAll(limit: 64 << 10)
            text = String(decoding: bytes, as: UTF8.self)
        } catch {
            throw .usage("--token-file: \(error)")
        }
        guard let line = text.split(whereSeparator: \.isNewline).first,
            let token = BearerToken(line.trimmed)
        else {
            throw .usage("--token-file: expected a token in '\(parts[1])', found none")
        }
        return (parts[0].lowercased(), token)
    }
}

/// Parser for rates in bytes per second: `500K` and `4MB` are decimal, `4MiB` is binary.
enum ByteRate {
    static func parse(_ text: String) throws -> ByteCount {
        guard let rate = ByteCount(parsing: text), rate > .zero else {
            throw ValidationError(
                "expected a rate such as 500kB, 4MB or 4MiB, found '\(text.forDisplay())'"
            )
        }
        return rate
    }
}

/// Parser for sizes: `500M` and `20GB` are decimal, `20GiB` is binary.
enum ByteSize {
    static func parse(_ text: String) throws -> ByteCount {
        guard let size = ByteCount(parsing: text) else {
            throw ValidationError(
                "expected a size such as 500MB, 20GB or 20GiB, found '\(text.forDisplay())'"
            )
        }
        return size
    }
}

extension Substring {
    fileprivate var trimmed: String {
        let start = drop { $0.isWhitespace }
        return String(start.reversed().drop { $0.isWhitespace }.reversed())
    }
}
