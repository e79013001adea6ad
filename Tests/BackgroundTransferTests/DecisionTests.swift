import BackgroundTransfer
import Foundation
import StageControl
import StageModel
import Testing

@testable import StageURLSession

/// Decisions that perform no input or output.
struct DecisionTests {
    private let request = TransferRequest(token: "t", kind: .download, url: "http://host/file")

    @Test func aTaskIsCreatedOnceAndThenChanged() {
        var record = ClientTaskState(request, created: .now)
        var sent = request
        sent.isSuspended = true
        #expect(record.nextStep() == .create(sent))
        record.wasCreated(as: 7)
        #expect(record.nextStep() == nil)
        #expect(record.resume() == true)
        var change = TransferChange()
        change.state = .running
        #expect(record.nextStep() == .change(7, change))
        #expect(record.nextStep() == nil)
        record.didNotSend(change)
        #expect(record.suspend() == true)
        change.state = .suspended
        #expect(record.nextStep() == .change(7, change), "the last word counts")
    }

    @Test func aChangeBeforeTheCreationIsPartOfTheRequest() {
        var record = ClientTaskState(request, created: .now)
        var change = TransferChange()
        change.description = "target"
        record.change(change)
        #expect(record.resume() == true)
        var sent = request
        sent.isSuspended = false
        sent.description = "target"
        #expect(record.nextStep() == .create(sent))
        record.wasCreated(as: 7)
        #expect(record.nextStep() == nil)
    }

    @Test func aRepeatedCreationIsFollowedByAllThatMayHaveChanged() {
        var record = ClientTaskState(request, created: .now)
        _ = record.nextStep()
        #expect(!record.isOnlyHere)
        #expect(record.resume() == true)
        _ = record.nextStep()
        record.wasCreated(as: 7)
        var change = TransferChange()
        change.state = .running
        #expect(record.nextStep() == .change(7, change))
    }

    @Test func aCreationWithoutAResponseLeavesTheTaskHere() {
        var record = ClientTaskState(request, created: .now)
        _ = record.nextStep()
        record.creationWasNotSent()
        #expect(record.isOnlyHere)
    }

    @Test func noEventsFollowTheCancellationOfATask() {
        var cancelled = TransferChange()
        cancelled.state = .cancelled
        cancelled.producesResumeToken = true
        var later = TransferChange()
        later.state = .running
        #expect(cancelled.merging(later) == cancelled)
        var record = ClientTaskState(request, created: .now)
        #expect(record.cancel(producingResumeData: false) == true)
        #expect(record.cancel(producingResumeData: true) == false)
        #expect(record.resume() == false)
        #expect(record.suspend() == false)
    }

    @Test func anEndIsTakenInOnce() {
        var record = ClientTaskState(request, created: .now)
        #expect(record.take(SessionEvent(.failed, time: .now)) == true)
        #expect(record.take(SessionEvent(.completed, time: .now)) == false)
        #expect(record.nextStep() == nil)
    }

    @Test func eventsAreAcknowledgedOnlyAfterEarlierOnesAreFinished() {
        var window = AcknowledgementWindow()
        window.attach(lastEvent: 6, acknowledged: 2, session: 1)
        #expect(window.due == nil)
        #expect(window.receive(2) == false)
        for sequence in Int64(3)...5 { #expect(window.receive(sequence) == true) }
        #expect(window.receive(4) == false)
        window.finish(4)
        window.finish(5)
        #expect(window.due == nil)
        window.finish(3)
        #expect(window.due == 5)
        window.wasAcknowledged(5)
        #expect(window.due == nil)
    }

    @Test func aDaemonWithoutItsRecordsCountsFromOne() {
        var window = AcknowledgementWindow()
        #expect(window.receive(9) == true)
        window.attach(lastEvent: 1, acknowledged: 0, session: 1)
        #expect(window.receive(1) == true)
    }

    /// A challenge field, and the values that are parsed from it.
    struct Field: Sendable {
        var value: String
        var schemes: [String]
        var realm: String?
        var answer: String?
    }

    @Test(arguments: [
        Field(value: #"Basic realm="a""#, schemes: ["basic"], realm: "a", answer: "Basic dTpw"),
        Field(value: "basic realm=a", schemes: ["basic"], realm: "a", answer: "Basic dTpw"),
        Field(
            value: #"Basic charset="UTF-8", realm="a, b""#,
            schemes: ["basic"],
            realm: "a, b",
            answer: "Basic dTpw"
        ),
        Field(
            value: #"Negotiate, Digest nonce="x", realm="d", Basic realm="b\"c""#,
            schemes: ["negotiate", "digest", "basic"],
            realm: #"b"c"#,
            answer: "Basic dTpw"
        ),
        Field(value: #"Digest realm="d""#, schemes: ["digest"], realm: "d"),
        Field(value: "", schemes: []),
        Field(value: #"Basic realm="#, schemes: ["basic"], realm: "", answer: "Basic dTpw"),
    ])
    func aChallengeIsRead(_ field: Field) {
        let challenge = Challenge(field.value, url: "https://host/file")
        #expect(challenge.schemes == field.schemes)
        #expect(challenge.realm == field.realm)
        let credential = URLCredential(user: "u", password: "p", persistence: .none)
        #expect(
            challenge.authorization(for: .useCredential, credential: credential) == field.answer
        )
        #expect(
            challenge.authorization(for: .performDefaultHandling, credential: credential) == nil
        )
        #expect(challenge.authorization(for: .useCredential, credential: nil) == nil)
    }

    @Test func aConfigurationIsCopiedAndSentWhole() {
        let configuration = URLSessionConfiguration.background(withIdentifier: "s")
        configuration.isDiscretionary = true
        configuration.allowsCellularAccess = false
        configuration.httpAdditionalHeaders = ["A": 1]
        configuration.timeoutIntervalForRequest = 5
        configuration.launchHandler = LaunchHandler(command: ["/bin/true"])
        let copy = configuration.duplicate()
        configuration.isDiscretionary = false
        var expected = SessionConfiguration()
        expected.isDiscretionary = true
        expected.allowsExpensiveNetworkAccess = false
        expected.headers = ["A": "1"]
        expected.requestTimeout = 5
        expected.answersChallenges = true
        expected.uploadProtocol = "resumable"
        expected.handler = LaunchHandler(command: ["/bin/true"])
        #expect(copy.message == expected)
    }

    @Test func aHandlerGetsTheFoldersOfItsClientExceptThoseThatItSets() {
        var handler = LaunchHandler(command: ["/bin/true"])
        handler.environment = ["XDG_DATA_HOME": "/data", "LANG": "C"]
        let client = [
            "HOME": "/mnt/home", "XDG_DATA_HOME": "/mnt/data", "XDG_STATE_HOME": "state",
            "XDG_CACHE_HOME": "/mnt/cache", "PATH": "/mnt/bin",
        ]
        let expected = [
            "HOME": "/mnt/home", "XDG_DATA_HOME": "/data", "XDG_CACHE_HOME": "/mnt/cache",
            "LANG": "C",
        ]
        #expect(handler.withFolders(of: client).environment == expected)
        handler.environment = nil
        #expect(handler.withFolders(of: ["HOME": "home"]).environment == nil)
    }

    @Test func allPropertiesOfAConfigurationAreInTheSettingsThatACopyGets() {
        let configuration = URLSessionConfiguration.ephemeral
        let stored = Mirror(reflecting: configuration).children.compactMap(\.label)
        #expect(stored == ["identifier", "settings"])
        configuration.enablesEarlyData = true
        configuration.waitsForConnectivity = true
        let copy = configuration.duplicate()
        configuration.waitsForConnectivity = false
        #expect(copy.enablesEarlyData && copy.waitsForConnectivity)
        #expect(copy.httpCookieStorage === configuration.httpCookieStorage)
    }

    @Test func aLaunchIsReadFromTheEnvironment() {
        let environment = ["STAGEPACK_SESSION": "s", "STAGEPACK_LAUNCH": "l"]
        #expect(BackgroundLaunch(environment: environment)?.identifier == "s")
        #expect(BackgroundLaunch(environment: [:]) == nil)
    }

    @Test func resumeDataOfOtherVersionsIsNone() throws {
        var data = ResumeData(request, token: "received", handlesCookies: false)
        #expect(ResumeData(try #require(data.data)) == data)
        data.version = 2
        #expect(ResumeData(try #require(data.data)) == nil)
        #expect(ResumeData(Data("x".utf8)) == nil)
    }

    @Test(arguments: [false, true])
    func resumeDataKeepsTheRuleForCookies(_ handlesCookies: Bool) throws {
        let rules = URLSessionConfiguration.ephemeral
        let cookie = try #require(
            HTTPCookie(properties: [.name: "a", .value: "1", .domain: "host", .path: "/"])
        )
        rules.httpCookieStorage?.setCookie(cookie)
        var received = request
        received.headers = ["X-Name": "1"]
        let data = ResumeData(received, token: "received", handlesCookies: handlesCookies)
        let task = TaskSpecification(resumeData: try #require(data.data), rules: rules)
        let cookies = handlesCookies ? ["Cookie": "a=1"] : [:]
        #expect(task.request.headers == ["X-Name": "1"].merging(cookies) { $1 })
        #expect(task.original?.httpShouldHandleCookies ?? true == handlesCookies)
    }

    /// Header fields that sessions in the process omit are omitted from tasks of a background session, too.
    @Test func fieldsOfTheDaemonAreLeftOut() throws {
        let rules = URLSessionConfiguration.background(withIdentifier: "s")
        rules.httpAdditionalHeaders = ["accept-encoding": "gzip", "Expect": "", "X-Session": "1"]
        #expect(rules.message.headers == ["X-Session": "1"])
        var request = URLRequest(url: try URL(text: "http://u:p@Host:80/file"))
        request.allHTTPHeaderFields = [
            "Accept-Encoding": "br", "Content-Length": "5", "expect": "100-continue",
            "Transfer-Encoding": "chunked", "Host": "host", "X-Name": "1",
        ]
        let own = TaskSpecification(download: request, rules: rules)
        #expect(own.request.headers == ["X-Name": "1"])
        // A 'Host' field with another name would address another server than the URL.
        request.allHTTPHeaderFields = ["Host": "other", "Range": "bytes=0-"]
        let other = TaskSpecification(download: request, rules: rules)
        #expect(other.request.headers == ["Host": "other", "Range": "bytes=0-"])
    }
}
