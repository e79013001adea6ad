import StageModel
import SystemPackage

@testable import StageDaemon

/// The settings of the command (`stagepack.json`) and of the daemon (`stagepackd.json`).
///
/// - Accepted numbers are within the limits that the reference states.
/// - A file of the command is an object, and its paths are absolute.
/// - Accepted settings are accepted again, with the same values.
enum SettingsTarget: FuzzTarget {
    static func test(_ bytes: [UInt8]) {
        if let settings = command(bytes) {
            require(command(bytes) == settings, "settings are read the same again")
            if let rate = settings.bandwidth { require(rate > .zero, "a rate lets bytes through") }
            if let deadline = settings.hookTimeLimit {
                require(deadline >= .zero, "a deadline is not in the past")
            }
            if let path = settings.certificateAuthorities {
                require(path.utf8.first == UInt8(ascii: "/"), "a path is absolute")
            }
        }
        if let configuration = daemon(bytes) {
            require(daemon(bytes) == configuration, "a configuration is read the same again")
            check(configuration)
        }
    }

    private static func check(_ configuration: DaemonConfiguration) {
        require((1...256).contains(configuration.connections), "there is a connection")
        let limit = 1_000_000_000
        for count in [configuration.connectionsPerHost, configuration.tasksPerUser] {
            require((1...limit).contains(count), "a count is positive and limited")
        }
        let sizes = [
            configuration.journalPerUser, configuration.bandwidth, configuration.bytesPerUser,
        ]
        for case .some(let size) in sizes {
            require(size > .zero && size.rawValue <= 1 << 50, "sums of bytes do not overflow")
        }
        require(configuration.reserve >= .zero, "a reserve is not negative")
        let times = [
            configuration.discretionaryWindow, configuration.relaunchDelay,
            configuration.retryBase, configuration.settlingTime,
        ]
        for time in times { require((0...1e9).contains(time), "times can be added") }
    }

    private static func command(_ bytes: [UInt8]) -> CommandSettings? {
        parsed { () throws(ManifestError) in try CommandSettings(json: bytes) }
    }

    private static func daemon(_ bytes: [UInt8]) -> DaemonConfiguration? {
        parsed { () throws(DaemonError) in
            try DaemonConfiguration(json: bytes, path: "stagepackd.json")
        }
    }

    static func seeds() -> [[UInt8]] {
        utf8(
            "{}",
            """
            {"httpProxy": "http://proxy:3128", "httpsProxy": "proxy:3128", "proxyExceptions": ".local",
            "certificateAuthorities": "/etc/ssl/a.pem", "bandwidth": "4MB", "hookDeadline": 60,
            "updateConditions": {"metered": false, "onBattery": false, "powerSaver": true}}
            """,
            """
            {"connections": 16, "connectionsPerHost": 6, "bandwidth": 1000000, "tasksPerUser": 10000,
            "bytesPerUser": 1000000000, "journalPerUser": 67108864, "reserve": 0, "launchLease": 30,
            "discretionaryWindow": 0, "relaunchDelay": 0.5, "retryBase": 2, "settlingTime": 1e1,
            "certificateAuthorities": "/a", "httpProxy": "p", "httpsProxy": "p",
            "proxyExceptions": "a,b", "busAddress": "unix:path=/a", "handlerUsers": ["nobody"],
            "updateConditions": {}}
            """,
            #"{"bandwidth": "500kB"}"#,
            #"{"reserve": 1125899906842625}"#
        )
    }

    static let words = utf8(
        "\"httpProxy\":",
        "\"httpsProxy\":",
        "\"proxyExceptions\":",
        "\"certificateAuthorities\":",
        "\"bandwidth\":",
        "\"hookDeadline\":",
        "\"updateConditions\":",
        "\"connections\":",
        "\"connectionsPerHost\":",
        "\"tasksPerUser\":",
        "\"bytesPerUser\":",
        "\"journalPerUser\":",
        "\"reserve\":",
        "\"launchLease\":",
        "\"retryBase\":",
        "\"settlingTime\":",
        "\"busAddress\":",
        "\"handlerUsers\":",
        "4MiB",
        "1e308",
        "-0.0",
        "9223372036854775807",
        "1e19",
        "null"
    )
}
