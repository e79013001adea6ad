import BackgroundTransfer
import Dispatch
import Foundation
import FoundationNetworking
import StageTesting
import Testing

@testable import StageURLSession

/// Cookies of sessions in this process.
@Suite(.server, .timeLimit(.minutes(5)))
struct ForegroundCookieTests: ForegroundSuite {
    private func cookies(_ path: String) -> [String?] {
        server.requests(for: path).map { $0["cookie"] }
    }

    private func load(_ paths: String..., in session: BackgroundTransfer.URLSession) async throws {
        for path in paths { _ = try await session.data(from: url(path)) }
    }

    /// Facts of the cookie that `www.example.com` sets at 1970-01-01 by a field; `nil` for none.
    private func cookie(_ field: String) throws -> String? {
        let url = try #require(URL(string: "https://www.example.com/a/b%20c/d?e=/f"))
        let now = Date(timeIntervalSince1970: 0)
        guard let cookie = HTTPCookie(setCookie: field, from: url, at: now) else { return nil }
        let end = cookie.expiresDate.map { "\(Int($0.timeIntervalSince1970))" } ?? "-"
        let marks = [
            cookie.isSessionOnly ? "session" : "", cookie.isSecure ? "secure" : "",
            cookie.isHTTPOnly ? "http" : "",
        ]
        let words = [
            "\(cookie.name)=\(cookie.value)", cookie.domain, cookie.path, end,
            marks.joined(separator: " "),
        ]
        return words.joined(separator: " | ").trimmingCharacters(in: .whitespaces)
    }

    @Test(
        arguments: [
            ("a=1", "a=1 | www.example.com | /a/b%20c | - | session"),
            (
                " a = \"1, b=2\" ; Secure",
                "a=\"1, b=2\" | www.example.com | /a/b%20c | - | session secure"
            ),
            ("a=; path=/x; HttpOnly", "a= | www.example.com | /x | - | session  http"),
            ("a=b=c; Path=x", "a=b=c | www.example.com | /a/b%20c | - | session"),
            ("a=1; Path=/x; Path=", "a=1 | www.example.com | /a/b%20c | - | session"),
            ("a=1; Path=/; Max-Age=300", "a=1 | www.example.com | / | 300 |"),
            (
                "a=1; Path=/; max-age=60; Expires=Thu, 01 Jan 1970 00:00:30 GMT",
                "a=1 | www.example.com | / | 60 |"
            ),
            (
                "a=1; Path=/; Expires=Thu, 01-Jan-70 00:00:30 GMT; Max-Age=x",
                "a=1 | www.example.com | / | 30 |"
            ),
            ("a=1; Path=/; Expires=soon", "a=1 | www.example.com | / | - | session"),
            (
                "a=1; Path=/; Max-Age=99999999999999999999",
                "a=1 | www.example.com | / | 2147483648 |"
            ),
            ("a=1; Path=/; Domain=.Example.com", "a=1 | .example.com | / | - | session"),
            ("a=1; Path=/; Domain=www.example.com", "a=1 | .www.example.com | / | - | session"),
            ("a=1; Path=/; Domain=", "a=1 | www.example.com | / | - | session"),
            ("a=1; Domain=com", nil), ("a=1; Domain=ample.com", nil),
            ("a=1; Domain=b.example", nil),
            ("a", nil), ("=1", nil), ("", nil), ("; Path=/", nil),
        ] as [(String, String?)]
    )
    func aFieldIsParsedAsTheRFCSays(_ field: String, facts: String?) throws {
        #expect(try cookie(field) == facts)
    }

    @Test func aCookieOfAnAddressIsOfThatAddress() throws {
        let url = try #require(URL(string: "http://10.0.0.1/"))
        func domain(_ field: String) -> String? {
            HTTPCookie(setCookie: field, from: url, at: .now)?.domain
        }
        #expect(domain("a=1") == "10.0.0.1")
        #expect(domain("a=1; Domain=10.0.0.1") == "10.0.0.1")
        #expect(domain("a=1; Domain=0.0.1") == nil)
    }

    @Test(arguments: ["Max-Age=0", "Max-Age=-1", "Expires=Thu, 01 Jan 1970 00:00:00 GMT"])
    func aServerDeletesItsCookie(_ attribute: String) async throws {
        server.answer(
            "/a",
            with: .content([1]).field("Set-Cookie", "one=1; Path=/"),
            .content([1]).field("Set-Cookie", "one=; Path=/; \(attribute)"),
            .content([1])
        )
        let session = session()
        try await load("/a", "/a", "/a", in: session)
        #expect(cookies("/a") == [nil, "one=1", nil])
        #expect(session.configuration.httpCookieStorage?.cookies == [])
    }

    @Test func aCookieWithoutAPathIsForTheDirectoryOfItsURL() async throws {
        let paths = ["/deep/a", "/deep/", "/deep/b/c", "/deeper", "/"]
        for path in paths { server.answer(path, with: .content([1])) }
        server.answer("/deep/a", with: .content([1]).field("Set-Cookie", "one=1, two=2"))
        let session = session()
        for path in paths { try await load(path, in: session) }
        #expect(cookies("/deep/") == ["one=1, two=2"])
        #expect(cookies("/deep/b/c") == ["one=1, two=2"])
        #expect(cookies("/deeper") == [nil])
        #expect(cookies("/") == [nil])
    }

    @Test func cookiesOfLongerPathsAreSentFirst() async throws {
        for (path, cookie) in [
            ("/1", "z=1; Path=/"), ("/2", "y=2; Path=/x/y"), ("/3", "a=3; Path=/"),
            ("/4", "x=4; Path=/x"),
        ] {
            server.answer(path, with: .content([1]).field("Set-Cookie", cookie))
        }
        server.answer("/x/y", with: .content([1]))
        let session = session()
        try await load("/1", "/2", "/3", "/4", "/x/y", in: session)
        #expect(cookies("/x/y") == ["y=2; x=4; z=1; a=3"])
    }

    @Test func cookiesOfDownloadsAreSentWithTheNextRequests() async throws {
        server.answer("/a", with: .redirect(to: "/b").field("Set-Cookie", "one=1; Path=/"))
        server.answer("/b", with: .content([1]).field("Set-Cookie", "two=2; Path=/"))
        server.answer("/c", with: .content([1]))
        let session = session()
        for path in ["/a", "/c"] {
            let (file, _) = try await session.download(from: url(path))
            try FileManager.default.removeItem(at: file)
        }
        #expect(cookies("/b") == ["one=1"])
        #expect(cookies("/c") == ["one=1; two=2"])
    }

    @Test func otherTasksContinueWhileTheCookiesOfATaskAreStored() async throws {
        server.answer("/a", with: .content(data(1000)).field("Set-Cookie", "one=1; Path=/"))
        server.answer("/b", with: .content([1]))
        let session = session()
        let gate = Gate()
        session.cookieQueue.async { gate.wait() }
        let task = session.downloadTask(with: try url("/a"))
        task.resume()
        try await poll { task.countOfBytesReceived == 1000 }
        try await load("/b", in: session)
        #expect(task.state == .running)
        #expect(session.configuration.httpCookieStorage?.cookies == [])
        gate.open()
        try await poll { task.state == .completed }
        #expect(session.configuration.httpCookieStorage?.cookies?.map(\.name) == ["one"])
    }

    @Test(arguments: [false, true])
    func anotherHostIsForeignToAMainDocumentAlone(_ hasDocument: Bool) async throws {
        server.answer("/a", with: .redirect(to: server.url("/b", host: "localhost")))
        server.answer("/b", with: .redirect(to: "/c").field("Set-Cookie", "one=1; Path=/"))
        server.answer("/c", with: .content([1]))
        var asked = try request("/a", "GET")
        if hasDocument { asked.mainDocumentURL = try url("/") }
        _ = try await session().data(for: asked)
        #expect(cookies("/c") == [hasDocument ? nil : "one=1"])
    }
}
