import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import Testing

@testable import StageDaemon

/// Members of requests with values that are not allowed, and the messages of the refusals.
struct RequestLimitsTests {
    /// A change that makes a valid request an invalid one.
    struct Row<Value: Sendable>: Sendable, CustomTestStringConvertible {
        var message: String
        var change: @Sendable (inout Value) -> Void
        var testDescription: String { message }

        init(_ message: String, _ change: @escaping @Sendable (inout Value) -> Void) {
            (self.message, self.change) = (message, change)
        }

        func changed(_ value: Value) -> Value {
            var value = value
            change(&value)
            return value
        }
    }

    private static let digest = String(repeating: "a", count: 64)
    private static let tooLarge = ByteCount(RequestLimits.size + 1)
    private static let wrongSize = "expected sizes of at most 1125899906842624 bytes"
    private static let wrongFields = "expected at most 100 header fields with 65536 bytes"
    private static let wrongDomains = "expected at most 256 'allowedDomains' of 1 to 255 bytes"

    private static let downloads: [Row<TransferRequest>] = [
        Row("expected an absolute http or https URL, found 'http://a/ b'") {
            $0.url = "http://a/ b"
        },
        Row("mirrors need a 'sha256', by which their content is known to be the same") {
            $0.mirrors = ["http://a/"]
        },
        Row("expected at most 64 mirrors") {
            $0.sha256 = digest
            $0.mirrors = Array(repeating: "http://a/", count: 65)
        },
        Row(wrongDomains) { $0.allowedDomains = ["a", ""] },
        Row(wrongDomains) { $0.allowedDomains = Array(repeating: "a", count: 257) },
        Row("a URL is on none of the 'allowedDomains'") { $0.allowedDomains = ["b"] },
        Row("a URL is on none of the 'allowedDomains'") {
            $0.sha256 = digest
            $0.mirrors = ["http://b/"]
            $0.allowedDomains = ["a"]
        },
        Row("expected 64 hexadecimal digits as 'sha256'") { $0.sha256 = "abc" },
        Row("expected a method of HTTP, found 'get'") { $0.method = "get" },
        Row("expected a method of HTTP, found ''") { $0.method = "" },
        Row(wrongSize) { $0.size = tooLarge },
        Row(wrongSize) { $0.expectedToReceive = tooLarge },
        Row(wrongSize) { $0.expectedToSend = tooLarge },
        Row("expected a priority from 0 to 1, found 1.5") { $0.priority = 1.5 },
        Row("expected an 'earliestBegin' within 10,000 years of 1970") {
            $0.earliestBegin = Date(timeIntervalSince1970: -101 * RequestLimits.timeout)
        },
        Row("'description' must have 0 to 4096 bytes, found 4097") {
            $0.description = String(repeating: "a", count: 4097)
        },
        Row("'description' must not contain a zero byte") { $0.description = "\0" },
        Row("'resumeToken' must have 0 to 64 bytes, found 65") {
            $0.resumeToken = String(repeating: "a", count: 65)
        },
        Row("expected the absolute path of a file to upload") { $0.kind = .upload },
        Row("expected the absolute path of a file to upload") {
            $0.kind = .upload
            $0.file = "file"
        },
        Row("'file' must not contain a zero byte") {
            $0.kind = .upload
            $0.file = "/\0"
        },
        Row("only an upload has a file to upload") { $0.file = "/file" },
        Row("only a staging has a 'staging'") { $0.staging = StagingJob() },
        Row(wrongFields) { request in
            let names = (1...101).map { ("A\($0)", "b") }
            request.headers = Dictionary(uniqueKeysWithValues: names)
        },
        Row(wrongFields) { request in
            let names = (1...5).map { ("A\($0)", String(repeating: "b", count: 14_000)) }
            request.headers = Dictionary(uniqueKeysWithValues: names)
        },
        Row("the header field 'A' cannot be sent") {
            $0.headers = ["A": String(repeating: "b", count: RequestLimits.field)]
        },
        Row("the header field 'A b' cannot be sent") { $0.headers = ["A b": "c"] },
        Row("the header field 'A' cannot be sent") { $0.headers = ["A": "b\nC: d"] },
        Row(
            "the header field 'A' has the placeholder for hidden values, '(not shown)': send its own value"
        ) {
            $0.headers = ["A": TransferTask.hiddenValue]
        },
    ]

    @Test(arguments: downloads) func aDownloadOrUploadIsRefused(row: Row<TransferRequest>) throws {
        let valid = TransferRequest(token: "t", kind: .download, url: "http://a/")
        try RequestLimits.check(valid, in: SessionConfiguration())
        let request = row.changed(valid)
        #expect(
            throws: ControlRefusal(.invalid, message: "task 't': \(row.message)")
        ) { try RequestLimits.check(request, in: SessionConfiguration()) }
    }

    @Test(arguments: ["", String(repeating: "t", count: 257)])
    func aTokenIsRefused(token: String) {
        let request = TransferRequest(token: token, kind: .download, url: "http://a/")
        let message = "a task's token must have 1 to 256 bytes, found \(token.utf8.count)"
        #expect(throws: ControlRefusal(.invalid, message: message)) {
            try RequestLimits.check(request, in: SessionConfiguration())
        }
    }

    @Test(arguments: [
        "Range", "IF-RANGE", "accept-encoding", "Content-Length", "Transfer-Encoding", "Host",
    ])
    func aFieldThatTheDaemonSetsIsRefused(name: String) {
        #expect(
            throws: ControlRefusal(
                .invalid,
                message: "the header field '\(name)' is the daemon's to set"
            )
        ) { try RequestLimits.check(header: name, value: "a") }
    }

    private static let job = "a staging names an application or manifests"
    private static let packs = "a staging names packs or an event"
    private static let member = "a staging must not have members of a transfer"

    private static let stagings: [Row<TransferRequest>] = [
        Row("a staging needs 'staging', the packs to stage") { $0.staging = nil },
        Row(member) { $0.resumeToken = "r" }, Row(member) { $0.headers = [:] },
        Row(member) { $0.mirrors = [] }, Row(member) { $0.allowedDomains = [] },
        Row(member) { $0.sha256 = digest },
        Row("expected a 'staging' of at most 65000 bytes as JSON: ask for an event") {
            $0.staging?.event = nil
            $0.staging?.packs = Array(repeating: String(repeating: "p", count: 100), count: 700)
        },
        Row(job) { $0.staging?.application = nil },
        Row(job) { $0.staging?.manifests = ["http://a/"] },
        Row(packs) { $0.staging?.event = nil }, Row(packs) { $0.staging?.packs = ["aurora"] },
        Row("each text of a staging must have 1 to 8192 bytes, found 0") {
            $0.staging?.applicationVersion = ""
        },
        Row("each text of a staging must not contain a zero byte") { $0.staging?.event = "\0" },
        Row("expected the absolute path of a container") { $0.staging?.container = "container" },
        Row("a staging has no variable 'LD_PRELOAD'") {
            $0.staging?.environment = ["LD_PRELOAD": "/library"]
        },
        Row("expected an absolute path as 'HOME'") { $0.staging?.environment = ["HOME": "home"] },
        Row("'HOME' must have 1 to 4095 bytes, found 0") { $0.staging?.environment = ["HOME": ""] },
        Row("only an upload has a file to upload") { $0.file = "/file" },
    ]

    @Test(arguments: stagings) func aStagingIsRefused(row: Row<TransferRequest>) throws {
        var valid = TransferRequest(token: "t", kind: .staging, url: "")
        var job = StagingJob()
        (job.application, job.event) = ("net.example.app", "install")
        valid.staging = job
        try RequestLimits.check(valid, in: SessionConfiguration())
        let request = row.changed(valid)
        #expect(throws: ControlRefusal(.invalid, message: "task 't': \(row.message)")) {
            try RequestLimits.check(request, in: SessionConfiguration())
        }
    }

    /// If a job failed, the daemon repeats it with a member that says so.
    @Test func theLargestJobFitsIntoAMessageAlsoWhenItIsRepeated() throws {
        var job = StagingJob()
        job.application = "net.example.app"
        // Each text has a limit of its own.
        job.packs = Array(repeating: String(repeating: "p", count: 8000), count: 8) + [""]
        let rest = RequestLimits.maximumStagingBytes - (try ControlFormat.encode(job).count)
        job.packs?[8] = String(repeating: "p", count: rest)
        #expect(try ControlFormat.encode(job).count == RequestLimits.maximumStagingBytes)
        var largest = TransferRequest(token: "t", kind: .staging, url: "")
        largest.staging = job
        try RequestLimits.check(largest, in: SessionConfiguration())
        let repetition = WorkerJob(job, isRepetition: true)
        #expect(try ControlFormat.encode(repetition).count <= MessageSocket.maximumLength)
        job.packs?[8].append("p")
        largest.staging = job
        let tooLarge = largest
        let message =
            "task 't': expected a 'staging' of at most 65000 bytes as JSON: ask for an event"
        #expect(throws: ControlRefusal(.invalid, message: message)) {
            try RequestLimits.check(tooLarge, in: SessionConfiguration())
        }
    }

    private static let timeouts =
        "expected timeouts of more than 0 seconds, and of a century at most"

    private static let sessions: [Row<SessionConfiguration>] = [
        Row("'group' must have 1 to 256 bytes, found 0") { $0.group = "" },
        Row("expected '1.2' or '1.3' as 'minimumTLSVersion'") { $0.minimumTLSVersion = "1.1" },
        Row("expected 'plain', 'resumable' or 'tus' as 'uploadProtocol'") {
            $0.uploadProtocol = ""
        },
        Row(timeouts) { $0.requestTimeout = 0 }, Row(timeouts) { $0.resourceTimeout = .nan },
        Row(timeouts) { $0.resourceTimeout = RequestLimits.timeout * 1.01 },
        Row("expected 1 to 65536 connections per host") { $0.maximumConnectionsPerHost = 0 },
        Row("expected 1 to 65536 connections per host") { $0.maximumConnectionsPerHost = 65_537 },
        Row("the header field 'Host' is the daemon's to set") { $0.headers = ["Host": "b"] },
        Row("expected the absolute path of a handler's program") {
            $0.handler = LaunchHandler(command: ["true"])
        },
        Row(strings("command")) { $0.handler?.command.append("\0") },
        Row(strings("command")) {
            $0.handler?.command += Array(repeating: "", count: RequestLimits.strings.count)
        },
        Row(strings("command")) {
            $0.handler?.command.append(String(repeating: "a", count: RequestLimits.strings.bytes))
        },
        Row("expected the absolute path of a handler's directory") {
            $0.handler?.directory = "tmp"
        },
        Row("a handler's directory must not contain a zero byte") { $0.handler?.directory = "/\0" },
        Row("a handler's version must not contain a zero byte") { $0.handler?.version = "\0" },
        Row(strings("environment")) { $0.handler?.environment = ["A": "\0"] },
        Row("expected names of variables without '='") { $0.handler?.environment = ["": "a"] },
        Row("expected names of variables without '='") { $0.handler?.environment = ["A=B": "a"] },
        Row("expected an absolute path as 'HOME'") { $0.handler?.environment = ["HOME": "home"] },
        Row("expected an absolute path as 'HOME'") { $0.handler?.environment = ["HOME": ""] },
    ]

    private static func strings(_ what: String) -> String {
        "a handler's \(what) must have at most 256 strings with 32768 bytes in all, and no zero bytes"
    }

    @Test(arguments: sessions) func aSessionIsRefused(row: Row<SessionConfiguration>) throws {
        var valid = SessionConfiguration()
        valid.handler = LaunchHandler(command: ["/bin/true"])
        try RequestLimits.check(valid, identifier: "s")
        let wanted = row.changed(valid)
        #expect(throws: ControlRefusal(.invalid, message: row.message)) {
            try RequestLimits.check(wanted, identifier: "s")
        }
    }

    @Test(arguments: [
        ("", "a session's identifier must have 1 to 255 bytes, found 0"),
        (
            String(repeating: "a", count: 256),
            "a session's identifier must have 1 to 255 bytes, found 256"
        ),
        ("\0", "a session's identifier must not contain a zero byte"),
    ])
    func anIdentifierIsRefused(identifier: String, message: String) {
        #expect(throws: ControlRefusal(.invalid, message: message)) {
            try RequestLimits.check(SessionConfiguration(), identifier: identifier)
        }
    }

    @Test func aTaskIsChangedOnceInARequest() {
        let changes = [1, 2, 1].map { TaskChange($0, change: TransferChange()) }
        #expect(throws: ControlRefusal(.invalid, message: "expected one change of each task")) {
            try RequestLimits.check(TaskChanges(changes))
        }
    }

    @Test func aRequestHasAThousandTasksAtMost() {
        let refusal = ControlRefusal(
            .tooLarge,
            message: "expected at most 1000 tasks in a request: send them in several"
        )
        let changes = (1...1001).map { TaskChange($0, change: TransferChange()) }
        #expect(throws: refusal) { try RequestLimits.check(TaskChanges(changes)) }
        let task = TransferRequest(token: "t", kind: .download, url: "http://a/")
        let tasks = NewTasks(Array(repeating: task, count: 1001))
        #expect(throws: refusal) { try RequestLimits.check(tasks) }
    }

    @Test(
        arguments: [(RequestLimits.size + 1, 0), (0, RequestLimits.size + 1)] as [(Int64, Int64)]
    )
    func bytesOfAStagingHaveALimit(received: Int64, expected: Int64) {
        let bytes = StagingBytes(received: ByteCount(received), expected: ByteCount(expected))
        let message = "expected 'stagingBytes' of at most 1125899906842624 bytes"
        #expect(throws: ControlRefusal(.invalid, message: message)) {
            try RequestLimits.check(bytes)
        }
    }

    @Test func theEndOfAStagingIsRefused() {
        var failure = TransferFailure(.storage, reason: String(repeating: "a", count: 8193))
        let length = "the reason of a failure must have 0 to 8192 bytes, found 8193"
        #expect(throws: ControlRefusal(.invalid, message: length)) {
            try RequestLimits.check(StagingEnd(failure, pendingReason: nil))
        }
        (failure.reason, failure.resumeToken) = ("", "token")
        let token = "a staging leaves no 'resumeToken'"
        #expect(throws: ControlRefusal(.invalid, message: token)) {
            try RequestLimits.check(StagingEnd(failure, pendingReason: nil))
        }
        let other = TransferFailure(.other("eclipse"), reason: "")
        let kind = "the kind of the failure is not known"
        #expect(throws: ControlRefusal(.invalid, message: kind)) {
            try RequestLimits.check(StagingEnd(other, pendingReason: nil))
        }
        failure.resumeToken = nil
        let reason = "the 'pendingReason' is not known"
        #expect(throws: ControlRefusal(.invalid, message: reason)) {
            try RequestLimits.check(StagingEnd(failure, pendingReason: .other("sunspots")))
        }
        var end = StagingEnd()
        end.pendingReason = .backoff
        let hold = "a staging that is complete waits for nothing"
        #expect(throws: ControlRefusal(.invalid, message: hold)) { try RequestLimits.check(end) }
    }
}
