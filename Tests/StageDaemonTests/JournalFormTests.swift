import Foundation
import StageControl
import StageModel
import StageTesting
import StageTransfer
import SystemPackage
import Testing

@testable import StageDaemon

/// Stored forms of values, which do not change with the control protocol.
@Suite(.directory, .daemon)
struct JournalFormTests {
    private static let time = Date(timeIntervalSince1970: 1_800_000_000.125)

    private static let launchLimiter: LaunchLimiter = {
        var launchLimiter = LaunchLimiter()
        let policy = LaunchLimiter.Policy()
        _ = launchLimiter.decide(token: "l-0", version: "7", boot: "b", policy: policy, at: time)
        launchLimiter.ended("l-0", wasAcknowledged: false)
        _ = launchLimiter.decide(
            token: "l-1",
            version: "7",
            boot: "b",
            policy: policy,
            at: time + 60
        )
        return launchLimiter
    }()

    private static let configuration: SessionConfiguration = {
        var configuration = SessionConfiguration()
        configuration.isDiscretionary = true
        configuration.allowsExpensiveNetworkAccess = false
        configuration.allowsConstrainedNetworkAccess = false
        configuration.sendsLaunchEvents = false
        configuration.handler = LaunchHandler(command: ["/bin/take", "in"])
        configuration.handler?.directory = "/tmp"
        configuration.handler?.environment = ["A": "b"]
        configuration.handler?.version = "7"
        configuration.maximumConnectionsPerHost = 3
        configuration.requestTimeout = 2.5
        configuration.resourceTimeout = 7200
        configuration.headers = ["X-A": "ä/"]
        configuration.answersChallenges = true
        configuration.minimumTLSVersion = "1.3"
        configuration.group = "staff"
        configuration.isTransient = true
        configuration.uploadProtocol = "tus"
        return configuration
    }()

    private static let upload: UploadResource = {
        var upload = UploadResource(url: "https://a.example/u", uploadProtocol: .resumable)
        upload.offset = ByteCount(7)
        upload.mayBeComplete = true
        upload.isNamedByOrigin = false
        upload.size = ByteCount(9)
        upload.entityTags = ["\"a\""]
        return upload
    }()

    private static let request: TransferRequest = {
        var request = TransferRequest(token: "t", kind: .upload, url: "https://a.example/b")
        request.staging = job
        request.mirrors = ["https://c.example/b"]
        request.allowedDomains = ["*.example"]
        request.method = "POST"
        request.headers = ["X-B": "1"]
        request.size = ByteCount(5_000_000_000)
        request.sha256 = "00ff"
        request.file = "/tmp/file"
        request.earliestBegin = time
        request.expectedToReceive = ByteCount(1)
        request.expectedToSend = ByteCount(2)
        request.description = "words"
        request.priority = 0.75
        request.isPromoted = true
        request.isSuspended = true
        request.allowsExpensiveNetworkAccess = false
        request.allowsConstrainedNetworkAccess = true
        request.resumeToken = "r-1"
        request.acceptsErrorResponses = true
        request.ignoresChallenges = false
        request.hasChallengeCredential = true
        request.isIdempotent = true
        request.failsWithoutRetry = true
        request.parts = UploadParts(
            parts: [
                UploadParts.Part(url: "https://a.example/1", size: ByteCount(5)),
                UploadParts.Part(url: "https://a.example/2", size: ByteCount(2)),
            ],
            completionURL: "https://a.example/c",
            abortURL: "https://a.example/d"
        )
        return request
    }()

    private static let job: StagingJob = {
        var job = StagingJob()
        job.application = "org.example"
        job.manifests = ["https://a.example/m"]
        job.container = "/srv/c"
        job.applicationVersion = "1.2"
        job.packs = ["p"]
        job.isRepair = true
        job.event = "periodic"
        job.isEssentialOnly = false
        job.conditions = UpdateConditions(
            requiresExternalPower: false,
            allowsExpensiveNetworkAccess: true,
            allowsConstrainedNetworkAccess: true
        )
        job.environment = ["HOME": "/home/u"]
        return job
    }()

    private static let event: SessionEvent = {
        var event = SessionEvent(.completed, time: time)
        event.bytesReceived = ByteCount(1)
        event.bytesSent = ByteCount(2)
        event.bytesExpected = ByteCount(3)
        event.response = TransferResponse(
            url: "https://a.example/b",
            status: 201,
            headers: [["ETag", "\"1\""]]
        )
        event.body = Data([0, 255])
        event.metrics = metrics
        event.failure = TransferFailure(.refused, reason: "no", status: 403)
        event.failure?.resumeToken = "r-2"
        event.challenge = "Basic"
        event.resumeToken = "r-3"
        return event
    }()

    private static let metrics: TransferMetrics = {
        var metrics = TransferMetrics(ended: time)
        metrics.started = time - 1
        metrics.attempts = 2
        metrics.bytesReceived = ByteCount(4)
        metrics.bytesSent = ByteCount(5)
        metrics.redirects = 1
        var attempt = AttemptMetrics()
        attempt.fetchStart = time - 0.5
        attempt.responseStart = time - 0.25
        attempt.responseEnd = time
        attempt.nameLookup = 0.5
        attempt.connect = 0.25
        attempt.secureConnect = 0.125
        attempt.requestStart = 1.5
        attempt.firstByte = 2.5
        attempt.networkProtocol = "h2"
        attempt.remoteAddress = "192.0.2.1"
        attempt.remotePort = 443
        attempt.localAddress = "192.0.2.2"
        attempt.localPort = 40_000
        attempt.isReusedConnection = true
        attempt.requestHeaderBytes = 6
        attempt.responseHeaderBytes = 7
        attempt.bytesReceived = 8
        attempt.bytesSent = 9
        metrics.attempt = attempt
        return metrics
    }()

    /// The bytes of each kind of stored document; the line breaks of these texts are not a part of them.
    private enum Golden {
        static let rights = #"{"group":100,"groups":[100,27],"version":1}"#
        static let launchLimiter = #"""
            {"boot":"b","failures":1,"handlerVersion":"7","lease":"l-1",
            "notBefore":1800000180125,"penalty":120,"version":1}
            """#
        static let configuration = #"""
            {"allowsConstrainedNetworkAccess":false,"allowsExpensiveNetworkAccess":false,
            "answersChallenges":true,"group":"staff","handler":{"command":["/bin/take","in"],
            "directory":"/tmp","environment":{"A":"b"},"version":"7"},"headers":{"X-A":"ä/"},
            "isDiscretionary":true,"isTransient":true,"maximumConnectionsPerHost":3,
            "minimumTLSVersion":"1.3","requestTimeout":2.5,"resourceTimeout":7200,
            "sendsLaunchEvents":false,"uploadProtocol":"tus","version":1}
            """#
        static let request = #"""
            {"acceptsErrorResponses":true,"allowedDomains":["*.example"],
            "allowsConstrainedNetworkAccess":true,"allowsExpensiveNetworkAccess":false,
            "description":"words","earliestBegin":1800000000125,"expectedToReceive":1,
            "expectedToSend":2,"failsWithoutRetry":true,"file":"/tmp/file","hasChallengeCredential":true,
            "headers":{"X-B":"1"},"ignoresChallenges":false,"isIdempotent":true,"isPromoted":true,"isSuspended":true,
            "kind":"upload","method":"POST","mirrors":["https://c.example/b"],
            "parts":{"abort":"https://a.example/d","completion":"https://a.example/c","sizes":[5,2],
            "urls":["https://a.example/1","https://a.example/2"]},"priority":0.75,
            "resumeToken":"r-1","sha256":"00ff","size":5000000000,
            "staging":{"application":"org.example","applicationVersion":"1.2",
            "conditions":{"allowsConstrainedNetworkAccess":true,
            "allowsExpensiveNetworkAccess":true,"requiresExternalPower":false},
            "container":"/srv/c","environment":{"HOME":"/home/u"},"event":"periodic",
            "isEssentialOnly":false,"isRepair":true,"manifests":["https://a.example/m"],
            "packs":["p"]},"token":"t","url":"https://a.example/b","version":1}
            """#
        static let upload = #"""
            {"entityTags":["\"a\""],"isNamedByOrigin":false,"mayBeComplete":true,"offset":7,"protocol":"resumable","size":9,
            "url":"https://a.example/u","version":1}
            """#
        static let event = #"""
            {"body":"AP8=","bytesExpected":3,"bytesReceived":1,"bytesSent":2,
            "challenge":"Basic","failure":{"kind":"refused","reason":"no","resumeToken":"r-2",
            "status":403},"kind":"completed","metrics":{"attempt":{"bytesReceived":8,
            "bytesSent":9,"connect":0.25,"fetchStart":1799999999625,"firstByte":2.5,
            "isReusedConnection":true,"localAddress":"192.0.2.2","localPort":40000,
            "nameLookup":0.5,"networkProtocol":"h2","remoteAddress":"192.0.2.1",
            "remotePort":443,"requestHeaderBytes":6,"requestStart":1.5,
            "responseEnd":1800000000125,"responseHeaderBytes":7,"responseStart":1799999999875,
            "secureConnect":0.125},"attempts":2,"bytesReceived":4,"bytesSent":5,
            "ended":1800000000125,"redirects":1,"started":1799999999125},
            "response":{"headers":[["ETag","\"1\""]],"status":201,"url":"https://a.example/b"},
            "resumeToken":"r-3","time":1800000000125,"version":1}
            """#
    }

    /// Expects that a value is encoded in a form, and that the form is decoded to the value.
    private func expect<Document: StoredDocument & Equatable>(
        _ value: Document,
        isStoredAs form: String
    ) throws {
        let form = form.filter { $0 != "\n" }
        #expect(String(decoding: try StoredForm.encode(value), as: UTF8.self) == form)
        #expect(try StoredForm.decode(Document.self, from: Data(form.utf8)) == value)
    }

    @Test func eachKindOfDocumentHasItsForm() throws {
        let rights = SessionRights(group: 100, groups: [100, 27])
        try expect(rights, isStoredAs: Golden.rights)
        try expect(Self.launchLimiter, isStoredAs: Golden.launchLimiter)
        try expect(Self.configuration, isStoredAs: Golden.configuration)
        try expect(Self.request, isStoredAs: Golden.request)
        try expect(Self.event, isStoredAs: Golden.event)
        try expect(Self.upload, isStoredAs: Golden.upload)
    }

    /// Returns the names of properties, of the value and of nested values, that the golden documents do not cover.
    private func untested<Document: StoredDocument>(_ value: Document) -> [String] {
        zip(Mirror(reflecting: value).children, Mirror(reflecting: Document.blank).children)
            .filter { "\($0.value)" == "\($1.value)" }
            .compactMap(\.0.label)
    }

    /// Each property of the protocol must be stored, or be listed here.
    @Test func everyPropertyIsStored() throws {
        #expect(untested(Self.launchLimiter) == [])
        #expect(untested(Self.configuration) == [])
        #expect(untested(try #require(Self.configuration.handler)) == [])
        #expect(untested(Self.request) == [])
        #expect(untested(Self.job) == [])
        #expect(untested(try #require(Self.job.conditions)) == [])
        #expect(untested(try #require(Self.event.response)) == [])
        #expect(untested(try #require(Self.event.failure)) == [])
        #expect(untested(Self.upload) == [])
        #expect(untested(Self.metrics) == [])
        #expect(untested(try #require(Self.metrics.attempt)) == [])
        let passing = ["sequence", "task", "session", "sessionNumber", "offset"]
        #expect(untested(Self.event) == passing + ["state", "pendingReasons", "location"])
    }

    @Test func eachKindHasItsName() throws {
        let kinds = TransferRequest.Kind.allCases.map(\.storedName)
        #expect(kinds == ["download", "upload", "staging"])
        let events = SessionEvent.Kind.allCases.compactMap(\.storedName)
        #expect(events == ["challenged", "completed", "failed", "cancelled"])
        #expect(
            UploadProtocol.allCases.map(\.storedName) == [
                "plain", "resumable", "tus", "presignedParts",
            ]
        )
        let failures = [
            "unreachable", "timedOut", "refused", "wrongContent", "untrusted", "unacceptable",
            "storage", "cannotResume", "lost",
        ]
        #expect(TransferFailure.Kind.allCases.map(\.storedName) == failures)
        #expect([StoredState.active, .verified, .ended].map(\.rawValue) == [0, 1, 2])
        #expect(
            [TransferConstraints.unmetered, .power].map(\.rawValue) == [1, 4]
        )
        let blocks = [Scheduler.Blocks.client, .user, .authentication, .leader]
        #expect(blocks.map(\.rawValue) == [1, 2, 4, 8])
    }

    static let damaged = [
        "", "{}", #"{"version":2,"group":1,"groups":[]}"#, #"{"group":1,"groups":[]}"#,
        #"{"version":1,"group":1}"#, #"{"version":1,"group":-1,"groups":[]}"#,
    ]

    @Test(arguments: damaged) func aDocumentOfAnotherFormIsNotRead(_ form: String) {
        #expect(throws: (any Error).self) {
            try StoredForm.decode(SessionRights.self, from: Data(form.utf8))
        }
    }

    @Test func aPassingEventIsNotStored() {
        #expect(throws: EncodingError.self) {
            try StoredForm.encode(SessionEvent(.progress, time: Self.time))
        }
    }

    /// A journal with rows of these forms, as an earlier daemon left it.
    @Test func rowsOfAnEarlierDaemonAreReadBack() async throws {
        let daemon = try DaemonProcess.required()
        try await daemon.start()
        #expect(try await daemon.kill(SIGTERM) == 0)
        let documents = [
            Golden.configuration.replacing("staff", with: ""), Golden.launchLimiter, Golden.rights,
            Golden.request, Golden.event, Golden.upload,
        ]
        let program = [
            "/usr/bin/python3", "-c", Self.program, daemon.state.appending("journal.sqlite").string,
        ]
        _ = try await Peer(daemon).run(
            as: geteuid(),
            getegid(),
            program + documents.map { $0.filter { $0 != "\n" } }
        )
        try await daemon.start()
        var configuration = Self.configuration
        configuration.group = ""
        let session = try #require(try await daemon.client.sessions().first)
        #expect(session.configuration == configuration)
        #expect(session.failedLaunches == 2)
        #expect((session.lastEvent, session.acknowledgedEvent) == (5, 3))
        var request = Self.request
        request.headers = ["X-B": "(not shown)"]
        request.parts = nil
        let tasks = try await daemon.client.tasks()
        #expect(tasks.map(\.request) == [request, request])
        #expect(tasks.map(\.state) == [.suspended, .completed])
        #expect(tasks.first?.bytesSent == ByteCount(7))
        var events = try await daemon.events(of: "s") { $0.sequence == 5 }
        events.removeAll { $0.sequence == nil }
        var event = Self.event
        (event.task, event.sequence) = (2, 4)
        var last = event
        last.sequence = 5
        #expect(events == [event, last])
    }

    private static let program = """
        import os, sqlite3, sys
        configuration, relaunch, rights, request, event, upload = (text.encode() for text in sys.argv[2:])
        with sqlite3.connect(sys.argv[1]) as journal:
            journal.execute("INSERT INTO session VALUES (1, ?, 's', ?, ?, ?, 5, 3)",
                            (os.geteuid(), rights, configuration, relaunch))
            for task, state, outcome in [(1, 0, None), (2, 2, event)]:
                journal.execute("INSERT INTO task VALUES (?, 1, ?, ?, ?, 'https://a.example', 750000000, 0, 1, NULL,"
                                "1800000000.125, 4000000000, 'task-1', NULL, ?, ?, ?)",
                                (task, os.geteuid(), f"t{task}", state, request, outcome, upload))
            for sequence, final in [(4, 0), (5, 1)]:
                journal.execute("INSERT INTO event VALUES (1, ?, 2, ?, ?)", (sequence, final, event))
        """
}
