import FoundationEssentials
import StageConditions
import StageControl
import StageModel
import StageSystem
import StageTesting
import StageTransfer
import SystemPackage
import Testing

@testable import StageDaemon

struct RequestAddressTests {
    @Test(arguments: HostileURL.all)
    func aTaskIsJudgedByTheServerThatIsAsked(url: HostileURL) throws {
        let origin = URLReference(url.text).origin
        var request = TransferRequest(token: "a", kind: .download, url: url.text)
        let host = origin?.host ?? "h"
        // A list contains names without a dot at their end.
        request.allowedDomains = [host.hasSuffix(".") ? String(host.dropLast()) : host]
        guard let expected = url.origin else {
            let refusal = #expect(throws: ControlRefusal.self) {
                try NewTask(request, in: SessionConfiguration(), at: .distantPast)
            }
            #expect(refusal?.code == .invalid)
            return
        }
        #expect(try NewTask(request, in: SessionConfiguration(), at: .distantPast).host == expected)
        request.allowedDomains = ["other.example"]
        #expect(throws: ControlRefusal.self) {
            try RequestLimits.check(request, in: SessionConfiguration())
        }
    }
}

struct UserQueueTests {
    private func item(_ host: String = "a", priority: Int = 50) -> Scheduler.Item {
        Scheduler.Item(
            user: 1,
            session: 1,
            host: host,
            sessionLimit: 2,
            priority: priority,
            constraints: []
        )
    }

    private func drain(_ queue: inout UserQueue) -> [Int64] {
        var ids: [Int64] = []
        while let id = queue.next(where: { _, _ in true }) { ids.append(id) }
        return ids
    }

    @Test func lanesAreMergedByPriorityAndThenByNumber() {
        var queue = UserQueue()
        queue.append(1, as: item("a"))
        queue.append(2, as: item("b"))
        queue.append(3, as: item("a", priority: 90))
        queue.append(4, as: item("a"))
        #expect(drain(&queue) == [3, 1, 2, 4])
        #expect(queue.isEmpty)
    }

    @Test func aWithdrawnTransferIsNotReturned() {
        var queue = UserQueue()
        for id in 1...4 as ClosedRange<Int64> { queue.append(id, as: item()) }
        queue.withdraw(1)
        queue.withdraw(3)
        #expect(drain(&queue) == [2, 4])
    }

    @Test func aTransferThatIsQueuedAgainIsReturnedOnce() {
        var queue = UserQueue()
        queue.append(1, as: item())
        queue.append(2, as: item())
        queue.withdraw(1)
        queue.append(1, as: item())
        #expect(drain(&queue).sorted() == [1, 2])
    }

    @Test func aLaneThatMayNotRunIsPassedOver() {
        var queue = UserQueue()
        queue.append(1, as: item("a"))
        queue.append(2, as: item("b"))
        #expect(queue.next { lane, limit in lane.host == "b" && limit == 2 } == 2)
        #expect(queue.next { lane, _ in lane.host == "b" } == nil)
        #expect(!queue.isEmpty)
    }
}

struct RelaunchTests {
    private let start = Date(timeIntervalSince1970: 1_800_000_000)

    /// Asks at some seconds after the start.
    private func decide(
        _ launchLimiter: inout LaunchLimiter,
        _ seconds: Double,
        version: String? = nil,
        boot: String = "boot"
    ) -> LaunchLimiter.Decision {
        launchLimiter.decide(
            token: "\(seconds)",
            version: version,
            boot: boot,
            policy: LaunchLimiter.Policy(),
            at: start + seconds
        )
    }

    @Test func eachFailureDoublesTheDelayUntilThereWereFive() {
        var launchLimiter = LaunchLimiter()
        var now = 0.0
        for delay in [60, 120, 240, 480, 960] as [Double] {
            #expect(decide(&launchLimiter, now) == .launch)
            #expect(launchLimiter.penalty == delay)
            #expect(decide(&launchLimiter, now) == .nothing, "one is under way")
            launchLimiter.ended("\(now)", wasAcknowledged: false)
            guard launchLimiter.failures < 5 else { break }
            let wait = LaunchLimiter.Decision.wait(until: start + now + delay)
            #expect(decide(&launchLimiter, now + delay - 1) == wait)
            now += delay
        }
        #expect(launchLimiter.failures == 5)
        #expect(decide(&launchLimiter, 1e9) == .nothing)
    }

    @Test func afterFiveFailuresAClientAVersionOrABootEndsIt() {
        var launchLimiter = LaunchLimiter()
        for now in [0, 1e4, 2e4, 3e4, 4e4] as [Double] {
            #expect(decide(&launchLimiter, now) == .launch)
            launchLimiter.ended("\(now)", wasAcknowledged: false)
        }
        var other = launchLimiter
        #expect(decide(&other, 5e4, version: "2") == .launch)
        other = launchLimiter
        #expect(decide(&other, 5e4, boot: "another") == .launch)
        other = launchLimiter
        other.attachedByItself()
        #expect(decide(&other, 5e4) == .launch)
        #expect(other.penalty == 60)
        #expect(decide(&launchLimiter, 5e4) == .nothing)
    }

    @Test func aNewVersionWaitsForTheFirstDelayAfterAFailure() {
        var launchLimiter = LaunchLimiter()
        #expect(decide(&launchLimiter, 0, version: "1") == .launch)
        launchLimiter.ended("0.0", wasAcknowledged: false)
        #expect(decide(&launchLimiter, 1, version: "2") == .wait(until: start + 60))
        #expect(decide(&launchLimiter, 2, version: "3") == .wait(until: start + 60))
        for now in [60, 1e4, 2e4, 3e4, 4e4] as [Double] {
            #expect(decide(&launchLimiter, now, version: "3") == .launch)
            launchLimiter.ended("\(now)", wasAcknowledged: false)
        }
        #expect(launchLimiter.penalty == 960)
        // The last delay and the five failures do not count for the new version.
        #expect(decide(&launchLimiter, 4e4 + 1, version: "4") == .wait(until: start + 4e4 + 60))
        #expect(!launchLimiter.isExhausted(LaunchLimiter.Policy()))
        #expect(decide(&launchLimiter, 4e4 + 60, version: "4") == .launch)
        #expect(launchLimiter.penalty == 60)
        #expect(launchLimiter.failures == 0)
    }

    @Test func aNewVersionAfterAnAcknowledgedLaunchDoesNotWait() {
        var launchLimiter = LaunchLimiter()
        #expect(decide(&launchLimiter, 0, version: "1") == .launch)
        launchLimiter.ended("0.0", wasAcknowledged: true)
        #expect(decide(&launchLimiter, 1, version: "2") == .launch)
        #expect(launchLimiter.penalty == 60)
    }

    @Test func aLaunchThatWasAcknowledgedDelaysNoneButTheTasksItMakes() {
        var launchLimiter = LaunchLimiter()
        #expect(decide(&launchLimiter, 0) == .launch)
        launchLimiter.acknowledged("0.0")
        launchLimiter.ended("0.0", wasAcknowledged: true)
        #expect(launchLimiter.earliestBegin(at: start + 1) == start + 60)
        #expect(decide(&launchLimiter, 2) == .launch)
        #expect(launchLimiter.earliestBegin(at: start + 3) == start + 122)
        #expect(launchLimiter.earliestBegin(at: start + 200) == nil)
        launchLimiter.ended("2.0", wasAcknowledged: true)
        // The delay has passed without a launch.
        #expect(decide(&launchLimiter, 200) == .launch)
        #expect(launchLimiter.penalty == 60)
    }

    @Test func aDaemonThatDiedCountsTheLaunchThatWasUnderWay() {
        var launchLimiter = LaunchLimiter()
        launchLimiter.failInterruptedLaunch()
        #expect(launchLimiter == LaunchLimiter())
        #expect(decide(&launchLimiter, 0) == .launch)
        launchLimiter.failInterruptedLaunch()
        #expect(launchLimiter.failures == 1)
        #expect(decide(&launchLimiter, 1) == .wait(until: start + 60))
    }

    @Test func aClockThatWasSetBackHoldsALaunchNoLongerThanTheDelay() {
        var launchLimiter = LaunchLimiter()
        #expect(decide(&launchLimiter, 1e6) == .launch)
        launchLimiter.ended("1000000.0", wasAcknowledged: false)
        #expect(decide(&launchLimiter, 0) == .launch)
    }

    @Test func theDelayStaysBelowADay() {
        var launchLimiter = LaunchLimiter()
        for turn in 0..<20 {
            _ = decide(&launchLimiter, Double(turn))
            launchLimiter.ended("\(Double(turn))", wasAcknowledged: true)
        }
        #expect(launchLimiter.penalty == 86_400)
    }
}

struct NeedsTests {
    @Test func theSessionAndTheTaskBothHaveASay() {
        let request = TransferRequest(token: "t", kind: .download, url: "http://a/")
        var strict = request
        strict.allowsExpensiveNetworkAccess = false
        var session = SessionConfiguration()
        #expect(TransferConstraints(session: session, request: request) == [])
        #expect(TransferConstraints(session: session, request: strict) == [.unmetered])
        session.isDiscretionary = true
        #expect(TransferConstraints(session: session, request: request) == [.unmetered, .power])
        session = SessionConfiguration()
        session.allowsExpensiveNetworkAccess = false
        var lax = request
        lax.allowsExpensiveNetworkAccess = true
        #expect(TransferConstraints(session: session, request: lax) == [.unmetered])
    }

    @Test(arguments: [
        (UpdateConditions(), TransferConstraints([.power, .unmetered])),
        (UpdateConditions(requiresExternalPower: false), TransferConstraints([.unmetered])),
        (UpdateConditions(allowsExpensiveNetworkAccess: true), TransferConstraints([.power])),
        (
            UpdateConditions(allowsConstrainedNetworkAccess: true),
            TransferConstraints([.power, .unmetered])
        ),
    ])
    func aStagingNeedsWhatItsConditionsSay(
        conditions: UpdateConditions,
        constraints: TransferConstraints
    ) {
        var request = TransferRequest(token: "t", kind: .staging, url: "net.example.game")
        request.staging = StagingJob()
        #expect(TransferConstraints(session: SessionConfiguration(), request: request) == [])
        request.staging?.conditions = conditions
        #expect(
            TransferConstraints(session: SessionConfiguration(), request: request) == constraints
        )
    }

    @Test func unknownConditionsCountAsMet() {
        #expect(TransferConstraints([.unmetered, .power]).unmet(in: .unknown) == [])
        var conditions = Conditions.unknown
        conditions.connectivity = .limited
        #expect(TransferConstraints([]).unmet(in: conditions) == [])
        conditions.connectivity = .portal
        #expect(TransferConstraints([]).unmet(in: conditions) == [.portal])
    }

    @Test func everyObstacleIsAPendingReason() {
        let kinds = ConditionObstacle.allCases.map { PendingReason.Kind(rawValue: $0.rawValue) }
        #expect(kinds == [.offline, .portal, .metered, .onBattery, .powerSaver])
    }
}

struct TransferVerdictTests {
    private static let now = Date(timeIntervalSince1970: 1_800_000_000)
    private static let url = "http://a/"

    private func verdict(
        _ error: TransferError,
        wait: (PendingReason.Kind, Duration)? = nil,
        answers: Bool = false,
        wrongClock: Bool = false,
        failures: Int = 0
    ) -> TransferVerdict {
        TransferVerdict(
            error,
            wait: wait.map { (reason: $0.0, duration: $0.1) },
            answersChallenges: answers,
            clockIsWrong: wrongClock,
            failures: failures,
            at: Self.now
        )
    }

    @Test func aWriteThatTheDiskHasRefusedIsRepeatedAFewTimes() {
        let fault = FileError("synchronize", path: "/part", errno: .ioError)
        let pause = PendingReason(.backoff, until: Self.now + 30, problem: "\(fault)")
        let error = TransferError.storage(fault)
        #expect(verdict(error, failures: 4) == .retry(pause))
        #expect(verdict(error, failures: 5) == .fail(TransferFailure(error)))
    }

    @Test func aWaitThatTheEngineBeganIsNoFailure() {
        let hold = PendingReason(.server, until: Self.now + 1.5)
        #expect(verdict(.cancelled, wait: (.server, .milliseconds(1500))) == .retry(hold))
        #expect(verdict(.cancelled) == .stopped)
    }

    @Test(arguments: [401, 407]) func aChallengeIsOneForAClientThatAnswers(status: Int) {
        let error = TransferError.refused(url: Self.url, status: status)
        #expect(verdict(error, answers: true) == .challenge)
        guard case .fail(let failure) = verdict(error) else {
            Issue.record("it goes on")
            return
        }
        #expect(failure.kind == .refused)
        #expect(failure.status == status)
    }

    @Test func aFullDiskAndAPortalAreWaitedFor() {
        #expect(verdict(.outOfSpace("/x")) == .disk(problem: nil))
        let readOnly = FileError("write", path: "/x", errno: .readOnlyFileSystem)
        #expect(verdict(.storage(readOnly)) == .disk(problem: "\(readOnly)"))
        let portal = TransferError.captivePortal(url: Self.url, answeredBy: Self.url)
        let wait = PendingReason(.portal, until: Self.now + 120, problem: "\(portal)")
        #expect(verdict(portal) == .retry(wait))
    }

    @Test func aCertificateIsWaitedForWhereTheClockIsWrong() {
        let early = TransferError.untrusted(url: Self.url, .notYetValid, detail: "")
        let hold = PendingReason(.clock, until: Self.now + 600, problem: "\(early)")
        #expect(verdict(early, wrongClock: true) == .retry(hold))
        #expect(verdict(early) == .fail(TransferFailure(early)))
        let forged = TransferError.untrusted(url: Self.url, .unverified, detail: "")
        #expect(verdict(forged, wrongClock: true) == .fail(TransferFailure(forged)))
    }

    static let kinds: [(TransferError, TransferFailure.Kind)] = [
        (.unreachable(url: url, detail: "x"), .unreachable),
        (.refused(url: url, status: 404), .refused),
        (.wrongSize(url: url, expected: .zero, actual: nil), .wrongContent),
        (.wrongDigest(url: url), .wrongContent),
        (.unacceptable(url: url, .noMirror), .unacceptable),
        (.storage(FileError("open", path: "/x", errno: .ioError)), .storage),
    ]

    @Test(arguments: kinds) func everyOtherErrorEndsTheTask(
        error: TransferError,
        kind: TransferFailure.Kind
    ) {
        guard case .fail(let failure) = verdict(error) else {
            Issue.record("it goes on")
            return
        }
        #expect(failure.kind == kind)
        #expect(failure.reason == "\(error)")
    }
}

@Suite(.directory)
struct DaemonConfigurationTests {
    private func read(_ json: String) throws -> DaemonConfiguration {
        let directory = try TemporaryDirectory.required()
        try directory.write(Array(json.utf8), to: "c.json", durably: false)
        return try DaemonConfiguration(contentsOf: directory.path.appending("c.json"))
    }

    @Test func missingMembersHaveTheirDefaults() throws {
        #expect(try read("{}") == DaemonConfiguration())
        var expected = DaemonConfiguration()
        expected.connections = 3
        expected.bandwidth = ByteCount(1000)
        (expected.retryBase, expected.reserve) = (0, .zero)
        let read = try read(
            #"{"connections": 3, "bandwidth": 1000, "retryBase": 0, "reserve": 0}"#
        )
        #expect(read == expected)
    }

    static let faults = [
        ("", "not JSON: line 1, column 1: expected a value, found the end"),
        ("[]", "expected an object, found an array"),
        ("{", "not JSON: line 1, column 2: "),
        ("{\n  \"connections\": 3,\n}", "not JSON: line 3, column 1: expected a member's name"),
        (
            #"{"conections": 3}"#, "there is no setting 'conections'; did you mean 'connections'?"
        ),
        (
            #"{"updateConditions": {"requiresPower": false}}"#,
            "there is no setting 'updateConditions.requiresPower'"
        ),
        (#"{"connections": "3"}"#, "'connections': expected a number, found '3'"),
        (#"{"bandwidth": "fast"}"#, "'bandwidth': expected a number, found 'fast'"),
        (#"{"handlerUsers": "www"}"#, "'handlerUsers': expected an array, found 'www'"),
        (
            #"{"httpProxy": "foo bar"}"#,
            "'httpProxy': expected a proxy such as 'http://proxy.example:8080', found 'foo bar'"
        ),
        (#"{"httpsProxy": "proxy:0"}"#, "'httpsProxy': expected a proxy such as "),
        (#"{"connections": 0}"#, "'connections': expected a positive number, found 0"),
        (#"{"connections": 257}"#, "'connections': expected at most 256, found 257"),
        (
            #"{"connectionsPerHost": 0}"#,
            "'connectionsPerHost': expected a positive number, found 0"
        ),
        (#"{"tasksPerUser": -1}"#, "'tasksPerUser': expected a positive number, found -1"),
        (#"{"journalPerUser": 0}"#, "'journalPerUser': expected a positive number, found 0"),
        (
            #"{"bandwidth": 0}"#,
            "'bandwidth': expected a positive number, found 0: omit it for no limit"
        ),
        (
            #"{"bytesPerUser": 0}"#,
            "'bytesPerUser': expected a positive number, found 0: omit it for the default"
        ),
        (
            #"{"reserve": 9000000000000000000}"#,
            "'reserve': expected at most 1125899906842624, found 9000000000000000000"
        ),
        (
            #"{"settlingTime": 1e10}"#,
            "'settlingTime': expected at most 1000000000, found 10000000000"
        ),
        (#"{"launchLease": 0}"#, "'launchLease': expected a positive number, found 0"),
        (#"{"retryBase": -1}"#, "'retryBase': expected no negative number, found -1"),
        (#"{"bandwidth": -1}"#, "'bandwidth': "),
        (#"{"reserve": 1.5}"#, "'reserve': expected a whole number, found 1.5"),
        (#"{"connections": 1.5}"#, "'connections': expected a whole number, found 1.5"),
        (#"{"connections": 1e300}"#, "'connections': expected a whole number, found 1e+300"),
        (
            #"{"certificateAuthorities": "a.pem"}"#,
            "'certificateAuthorities': expected an absolute path, found 'a.pem'"
        ),
        (
            #"{"certificateAuthorities": "/nonexistent/a.pem"}"#,
            "'certificateAuthorities': cannot open '/nonexistent/a.pem': No such file or directory"
        ),
    ]

    @Test(arguments: faults)
    func aFaultIsReportedWithItsPosition(json: String, words: String) throws {
        let error = #expect(throws: DaemonError.self) { try read(json) }
        #expect("\(try #require(error))".contains(words))
    }

    @Test func membersThatTakeEffectAtTheNextStartAreNamed() {
        let start = DaemonConfiguration()
        var changed = start
        (changed.connections, changed.connectionsPerHost) = (1, 1)
        (changed.tasksPerUser, changed.relaunchDelay) = (5, 5)
        #expect(changed.membersForRestart(after: start) == [])
        (changed.connections, changed.connectionsPerHost) = (17, 7)
        changed.httpsProxy = "http://proxy.example"
        #expect(
            changed.membersForRestart(after: start)
                == ["connections", "connectionsPerHost", "httpsProxy"]
        )
    }

    /// A FIFO keeps the daemon waiting for a writer, and a device has no end.
    @Test(arguments: ["/dev/zero", "/"])
    func aConfigurationThatIsNotARegularFileIsRefused(path: String) {
        #expect(throws: DaemonError.configuration(FilePath(path), "expected a regular file")) {
            try DaemonConfiguration(contentsOf: FilePath(path))
        }
    }

    /// The file names the proxies and the certificate authorities for the requests of all users.
    @Test(arguments: [0o664, 0o646] as [CInterop.Mode])
    func rootRefusesAFileThatOthersCanChange(mode: CInterop.Mode) throws {
        let directory = try TemporaryDirectory.required()
        try directory.write(
            Array("{}".utf8),
            to: "c.json",
            durably: false,
            exactly: FilePermissions(rawValue: mode)
        )
        let path = directory.path.appending("c.json")
        guard UserIdentity.current.user == 0 else {
            #expect(try DaemonConfiguration(contentsOf: path) == DaemonConfiguration())
            return
        }
        let error = #expect(throws: DaemonError.self) {
            try DaemonConfiguration(contentsOf: path)
        }
        let words = "its owner alone can write, found mode 0\(String(mode, radix: 8)): run 'chmod"
        #expect("\(try #require(error))".contains(words))
    }

    /// A user who changes the file can let a server pose as any other.
    @Test(arguments: [0o664, 0o646] as [CInterop.Mode])
    func rootRefusesAuthoritiesThatOthersCanChange(mode: CInterop.Mode) throws {
        let directory = try TemporaryDirectory.required()
        let path = directory.path.appending("authorities.pem")
        try directory.write(
            [],
            to: "authorities.pem",
            durably: false,
            exactly: FilePermissions(rawValue: mode)
        )
        let json = #"{"certificateAuthorities": "\#(path)"}"#
        guard UserIdentity.current.user == 0 else {
            #expect(try read(json).certificateAuthorities == path.string)
            return
        }
        let error = #expect(throws: DaemonError.self) { try read(json) }
        let words = """
            'certificateAuthorities': '\(path)': expected a file that its owner alone can write, \
            found mode 0\(String(mode, radix: 8)): run 'chmod go-w
            """
        #expect("\(try #require(error))".contains(words))
    }

    @Test func aFileThatIsNotThereIsReported() throws {
        let path = try TemporaryDirectory.required().path.appending("none.json")
        #expect(
            throws: DaemonError.configuration(path, "it cannot be read: No such file or directory")
        ) {
            try DaemonConfiguration(contentsOf: path)
        }
    }
}
