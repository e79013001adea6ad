import BackgroundTransfer
import Foundation
import StageControl
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// Settings of a session, and the delegate's methods that answer.
@Suite(.directory, .daemon, .server)
struct SessionSettingTests {
    /// A delegate that answers challenges by a method that returns the answer.
    private final class Answerer: NSObject, URLSessionTaskDelegate {
        let challenges = Mutex<[String]>([])
        let ended = Mutex<[Int: Int?]>([:])
        let password: String

        init(password: String) { self.password = password }

        func urlSession(
            _ session: URLSession,
            task: URLSessionTask,
            didReceive challenge: URLAuthenticationChallenge
        ) async -> (URLSession.AuthChallengeDisposition, URLCredential?) {
            challenges.withLock { $0.append(challenge.protectionSpace.realm ?? "-") }
            guard challenge.previousFailureCount == 0 else {
                return (.rejectProtectionSpace, nil)
            }
            return (
                .useCredential, URLCredential(user: "u", password: password, persistence: .none)
            )
        }

        func urlSession(
            _ session: URLSession,
            task: URLSessionTask,
            didCompleteWithError error: (any Error)?
        ) { ended.withLock { $0[task.taskIdentifier] = task.status } }
    }

    private let server = TestServer.current

    private func url(_ path: String) throws -> URL { try #require(URL(string: server.url(path))) }

    private var question: Answer {
        Answer(content: Array("who?".utf8)).with { $0.status = 401 }
            .field("WWW-Authenticate", #"Basic realm="r""#)
    }

    /// Runs a download to its end, and returns the status of its answer.
    private func download(
        in world: SessionWorld,
        _ session: URLSession,
        _ change: (inout URLRequest) -> Void = { _ in }
    ) async throws -> Int? {
        var request = URLRequest(url: try url("/x"))
        change(&request)
        let task = session.downloadTask(with: request)
        task.resume()
        if let error = try await world.end(of: task) { throw error }
        return task.status
    }

    @Test func theMethodThatReturnsAnAnswerIsCalled() async throws {
        let world = try await SessionWorld()
        let delegate = Answerer(password: "p")
        let session = world.session(delegate: delegate)
        server.answer("/x", with: question, .content([1]))
        let task = session.downloadTask(with: try url("/x"))
        task.resume()
        try await poll("the task does not end") { !delegate.ended.withLock(\.isEmpty) }
        #expect(delegate.challenges.withLock { $0 } == ["r"])
        #expect(task.status == 200)
        #expect(server.requests(for: "/x").map { $0["authorization"] } == [nil, "Basic dTpw"])
        try await world.end(session)
    }

    @Test func aRejectedChallengeDeliversTheServersAnswer() async throws {
        let world = try await SessionWorld()
        let delegate = Answerer(password: "wrong")
        let session = world.session(delegate: delegate)
        server.answer("/x", with: question)
        let task = session.downloadTask(with: try url("/x"))
        task.resume()
        try await poll("the task does not end") { !delegate.ended.withLock(\.isEmpty) }
        #expect(delegate.challenges.withLock { $0 } == ["r", "r"])
        #expect(task.status == 401 && task.error == nil)
        try await world.end(session)
    }

    @Test func aChallengeKeepsWhatWasReceived() async throws {
        let world = try await SessionWorld()
        let delegate = Answerer(password: "p")
        let session = world.session(delegate: delegate)
        let whole = noise(2 << 20)
        server.answer("/x", with: .content(whole).cut(after: 1 << 20), question, .content(whole))
        let task = session.downloadTask(with: try url("/x"))
        task.resume()
        try await poll("the task does not end") { !delegate.ended.withLock(\.isEmpty) }
        #expect(task.status == 206)
        #expect(server.requests(for: "/x").map { $0["range"] != nil } == [false, true, true])
        try await world.end(session)
    }

    @Test func theChallengeOfARedirectTargetIsItsAnswer() async throws {
        let world = try await SessionWorld()
        let delegate = Answerer(password: "p")
        let session = world.session(delegate: delegate)
        let target = try TestServer()
        defer { target.stop() }
        server.answer("/x", with: .redirect(to: target.url("/y")))
        target.answer("/y", with: question)
        let task = session.downloadTask(with: try url("/x"))
        task.resume()
        try await poll("the task does not end") { !delegate.ended.withLock(\.isEmpty) }
        #expect(delegate.challenges.withLock { $0 } == [])
        #expect(task.status == 401 && task.error == nil)
        let requests = server.requests(for: "/x") + target.requests(for: "/y")
        #expect(requests.map { $0["authorization"] } == [nil, nil])
        try await world.end(session)
    }

    @Test func cookiesOfOtherHostsSchemesAndPathsAreLeftOut() async throws {
        let world = try await SessionWorld()
        let storage = HTTPCookieStorage.sharedCookieStorage(
            forGroupContainerIdentifier: "\(try TemporaryDirectory.required().path)-others"
        )
        let session = world.session {
            $0.httpCookieStorage = storage
            $0.httpCookieAcceptPolicy = .always
        }
        for (path, cookie) in [
            ("/foreign", "a=1; Domain=bank.example; Path=/"),
            ("/top", "b=1; Domain=example; Path=/"),
            ("/secure", "c=1; Path=/; Secure"), ("/path", "d=1; Path=/elsewhere"),
            ("/good", "e=1; Path=/"),
        ] {
            server.answer(path, with: Answer.content([1]).field("Set-Cookie", cookie))
            let task = session.downloadTask(with: try url(path))
            task.resume()
            #expect(try await world.end(of: task) == nil)
        }
        #expect(storage.cookies?.map(\.name).sorted() == ["c", "d", "e"])
        server.answer("/x", with: .content([1]))
        #expect(try await download(in: world, session) == 200)
        #expect(server.requests(for: "/x").map { $0["cookie"] } == ["e=1"])
        try await world.end(session)
    }

    @Test func theCredentialStorageAnswersForADelegateThatDoesNot() async throws {
        let world = try await SessionWorld()
        let storage = URLCredentialStorage()
        let space = URLProtectionSpace(
            host: "127.0.0.1",
            port: try #require(try url("/x").port),
            protocol: "http",
            realm: "r",
            authenticationMethod: NSURLAuthenticationMethodHTTPBasic
        )
        let credential = URLCredential(user: "u", password: "p", persistence: .forSession)
        storage.setDefaultCredential(credential, for: space)
        let session = world.session { $0.urlCredentialStorage = storage }
        server.answer("/x", with: question, .content([1]))
        #expect(try await download(in: world, session) == 200)
        #expect(server.requests(for: "/x").last?["authorization"] == "Basic dTpw")
        try await world.end(session)
    }

    @Test(arguments: [
        (HTTPCookie.AcceptPolicy.onlyFromMainDocumentDomain, ["a=1", "b=2"]),
        (.never, ["a=1"]),
    ])
    func cookiesAreSentAndKept(policy: HTTPCookie.AcceptPolicy, then: [String]) async throws {
        let world = try await SessionWorld()
        let storage = HTTPCookieStorage.sharedCookieStorage(
            forGroupContainerIdentifier: "\(try TemporaryDirectory.required().path)"
        )
        let origin = try url("/x")
        let first = HTTPCookie.cookies(
            withResponseHeaderFields: ["Set-Cookie": "a=1; Path=/"],
            for: origin
        )
        first.forEach(storage.setCookie)
        let session = world.session {
            $0.httpCookieStorage = storage
            $0.httpCookieAcceptPolicy = policy
        }
        server.answer("/x", with: Answer.content([1]).field("Set-Cookie", "b=2; Path=/"))
        #expect(try await download(in: world, session) == 200)
        #expect(try await download(in: world, session) == 200)
        #expect(
            try await download(in: world, session) { $0.httpShouldHandleCookies = false } == 200
        )
        let sent = server.requests(for: "/x").map { request in
            request["cookie"]?.split(separator: "; ").map(String.init).sorted()
        }
        #expect(sent == [["a=1"], then, nil])
        #expect(storage.cookies(for: origin)?.isEmpty == false)
        await session.reset()
        #expect(storage.cookies(for: origin) == [])
        try await world.end(session)
    }

    @Test func intermediateCachesReceiveThePolicy() async throws {
        let world = try await SessionWorld()
        let session = world.session {
            $0.requestCachePolicy = .reloadIgnoringLocalAndRemoteCacheData
        }
        server.answer("/x", with: .content([1]))
        #expect(try await download(in: world, session) == 200)
        #expect(
            try await download(in: world, session) { $0.cachePolicy = .returnCacheDataElseLoad }
                == 200
        )
        #expect(server.requests(for: "/x").map { $0["cache-control"] } == ["no-cache", nil])
        await #expect(throws: URLError.self) {
            _ = try await download(in: world, session) { $0.cachePolicy = .returnCacheDataDontLoad }
        }
        #expect(server.requests(for: "/x").count == 2)
        try await world.end(session)
    }

    /// The versions of TLS that a client offers in its first message (RFC 8446, section 4.2.1).
    private static func versions(in hello: [UInt8]) -> [[UInt8]] {
        for index in hello.indices.dropLast(5)
        where hello[index] == 0 && hello[index + 1] == 0x2B && hello[index + 2] == 0
            && hello[index + 3] == hello[index + 4] + 1
        {
            let count = Int(hello[index + 4])
            let list = hello.dropFirst(index + 5).prefix(count)
            return stride(from: list.startIndex, to: list.endIndex, by: 2).map {
                Array(list[$0..<min($0 + 2, list.endIndex)])
            }
        }
        return []
    }

    @Test(arguments: [
        (tls_protocol_version_t.TLSv12, [[3, 4], [3, 3]] as [[UInt8]]),
        (.TLSv13, [[3, 4]]),
    ])
    func noOlderVersionOfTLSIsOffered(
        oldest: tls_protocol_version_t,
        offered: [[UInt8]]
    ) async throws {
        let world = try await SessionWorld()
        let listener = try HelloListener()
        let session = world.session { $0.tlsMinimumSupportedProtocolVersion = oldest }
        let target = try #require(URL(string: "https://127.0.0.1:\(listener.port)/x"))
        let task = session.downloadTask(with: target)
        task.resume()
        try await poll("no hello comes") { !listener.hello.isEmpty }
        #expect(Self.versions(in: listener.hello) == offered)
        listener.close()
        try await world.end(session)
    }
}
