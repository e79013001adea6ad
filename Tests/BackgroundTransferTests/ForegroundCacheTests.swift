import BackgroundTransfer
import Foundation
import FoundationNetworking
import Glibc
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The cache of a session in this process.
@Suite(.server, .directory, .timeLimit(.minutes(5)))
struct ForegroundCacheTests: ForegroundSuite {
    @Test func aFreshAnswerComesFromTheCache() async throws {
        server.answer("/a", with: .content([1, 2]).field("Cache-Control", "max-age=600"))
        let session = session()
        for _ in 0..<2 { #expect(try await session.data(from: url("/a")).0 == Data([1, 2])) }
        #expect(server.counts(for: "/a").requests == 1)
        var asked = try request("/a", "GET")
        asked.cachePolicy = .reloadIgnoringLocalCacheData
        _ = try await session.data(for: asked)
        #expect(server.counts(for: "/a").requests == 2)
        await session.reset()
        _ = try await session.data(from: url("/a"))
        #expect(server.counts(for: "/a").requests == 3)
    }

    @Test func aStaleAnswerIsConfirmedOrReplaced() async throws {
        server.answer("/a", with: .content([1, 2]).field("Cache-Control", "no-cache"))
        let session = session()
        for _ in 0..<2 {
            let (data, response) = try await session.data(from: url("/a"))
            #expect(data == Data([1, 2]))
            #expect((response as? HTTPURLResponse)?.statusCode == 200)
        }
        #expect(server.requests.last?["if-none-match"] != nil)
        #expect(server.counts(for: "/a").bytes == 2, "the second answer has no body")
        server.answer("/a", with: .content([3]).field("Cache-Control", "no-cache"))
        #expect(try await session.data(from: url("/a")).0 == Data([3]))
    }

    @Test(arguments: ["Cache-Control: no-store", "Vary: Cookie"])
    func aResponseThatMustNotBeStoredIsRequestedAgain(_ field: String) async throws {
        let parts = field.components(separatedBy: ": ")
        let answer = Answer.content([1]).field("Cache-Control", "max-age=600")
        server.answer("/a", with: answer.field(parts[0], parts[1]))
        let session = session()
        for _ in 0..<2 { _ = try await session.data(from: url("/a")) }
        #expect(server.counts(for: "/a").requests == 2)
        #expect(server.requests.last?["if-none-match"] == nil)
    }

    @Test func theCacheAloneAnswersWhereThePolicySaysSo() async throws {
        server.answer("/a", with: .content([1]).field("Cache-Control", "max-age=600"))
        let session = session()
        var asked = try request("/a", "GET")
        asked.cachePolicy = .returnCacheDataDontLoad
        await expect(code: .resourceUnavailable) { [asked] in try await session.data(for: asked) }
        _ = try await session.data(from: url("/a"))
        #expect(try await session.data(for: asked).0 == Data([1]))
        #expect(server.counts(for: "/a").requests == 1)
    }

    @Test func fieldsWhoseNamesDifferInCaseAreOne() async throws {
        let pairs = (0..<16).map { "X-Field-\($0): a\r\nx-field-\($0): b\r\n" }
        server.answer(
            "/a",
            with: .script { wire in
                wire.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n")
                wire.send("Cache-Control: public, max-age=600\r\ncache-control: private\r\n")
                wire.send("\(pairs.joined())\r\n1")
            }
        )
        let session = session()
        var asked = try request("/a", "GET")
        asked.setValue("Basic dTpw", forHTTPHeaderField: "Authorization")
        for _ in 0..<2 {
            let (_, response) = try await session.data(for: asked)
            let head = try #require(response as? HTTPURLResponse)
            let control = head.value(forHTTPHeaderField: "Cache-Control")
            #expect(control == "public, max-age=600, private")
            let values = (0..<16).map { head.value(forHTTPHeaderField: "x-field-\($0)") }
            #expect(values.allSatisfy { $0 == "a, b" }, "\(values)")
        }
        // A private response to a request with credentials is not stored.
        #expect(server.counts(for: "/a").requests == 2)
    }

    @Test func aDelegateDecidesWhatTheCacheKeeps() async throws {
        server.answer("/a", with: .content([1]).field("Cache-Control", "max-age=600"))
        let recorder = DataRecorder(keepsCopies: false)
        let session = session(recorder)
        for _ in 0..<2 {
            let task = session.dataTask(with: try url("/a"))
            task.resume()
            try await poll { task.state == .completed }
        }
        #expect(server.counts(for: "/a").requests == 2)
    }

    @Test func anAnswerOfTheCacheIsThatOfTheWholeURL() async throws {
        for user in [1, 2] {
            let answer = Answer.content([UInt8(user)]).field("Cache-Control", "max-age=600")
            server.answer("/a?user=\(user)", with: answer)
        }
        let session = session()
        for _ in 0..<2 {
            for user in [1, 2] {
                let (data, _) = try await session.data(from: url("/a?user=\(user)"))
                #expect(data == Data([UInt8(user)]))
            }
        }
    }

    @Test func aCacheThatIsConfirmedOftenStaysWhole() async throws {
        let answer = Answer.content(data(100_000)).field("Cache-Control", "no-cache")
        server.answer("/a", with: answer)
        for number in 0..<60 { server.answer("/other/\(number)", with: answer) }
        let session = session()
        session.configuration.urlCache?.memoryCapacity = 4 << 20
        for _ in 0..<3 { _ = try await session.data(from: url("/a")) }
        for number in 0..<60 { _ = try await session.data(from: url("/other/\(number)")) }
        #expect(try await session.data(from: url("/a")).0 == Data(data(100_000)))
    }

    @Test func aResourceThatAnUploadChangedIsRequestedAgain() async throws {
        server.answer("/a", with: .content([1]).field("Cache-Control", "max-age=600"))
        let session = session()
        _ = try await session.data(from: url("/a"))
        _ = try await session.upload(for: request("/a", "PUT"), from: Data([2]))
        _ = try await session.data(from: url("/a"))
        #expect(server.requests(for: "/a").map(\.method) == ["GET", "PUT", "GET"])
    }

    @Test func theAgeOfACachedResponseIncludesItsAgeField() async throws {
        let answer = Answer.content([1]).field("Cache-Control", "max-age=1000").field("Age", "999")
        server.answer("/a", with: answer)
        let session = session()
        _ = try await session.data(from: url("/a"))
        try await poll {
            _ = try await session.data(from: url("/a"))
            return server.counts(for: "/a").requests == 2
        }
        #expect(server.requests.last?["if-none-match"] != nil)
    }

    @Test func theTimeThatAnAnswerTookIsOfItsAge() async throws {
        let answer = Answer.content([1]).field("Cache-Control", "max-age=1000").field("Age", "999")
        server.answer(
            "/a",
            with: answer.waiting {
                // The time counts from the request, which may come late.
                let asked = ContinuousClock.now
                while ContinuousClock.now < asked + .seconds(2) { usleep(1000) }
            },
            answer
        )
        let session = session()
        for _ in 0..<2 { _ = try await session.data(from: url("/a")) }
        #expect(server.counts(for: "/a").requests == 2)
    }

    @Test func anAnswerWithoutADateIsFreshForAsLongAsItSays() async throws {
        let answer = Answer.content([1]).field("Cache-Control", "max-age=600").omitting("Date")
        server.answer("/a", with: answer)
        let session = session()
        for _ in 0..<2 { _ = try await session.data(from: url("/a")) }
        #expect(server.counts(for: "/a").requests == 1)
    }

    @Test func theAgeOfAnAnswerIsKeptOnDisk() async throws {
        let fresh = Answer.content([1]).field("Cache-Control", "max-age=1000")
        server.answer("/fresh", with: fresh)
        server.answer("/old", with: fresh.field("Age", "999"))
        let directory = try TemporaryDirectory.required().path.appending("cache").string
        for number in 1...2 {
            let session = session {
                $0.urlCache = URLCache(
                    memoryCapacity: 0,
                    diskCapacity: 10 << 20,
                    diskPath: directory
                )
            }
            _ = try await session.data(from: url("/fresh"))
            #expect(server.counts(for: "/fresh").requests == 1)
            try await poll {
                _ = try await session.data(from: url("/old"))
                return server.counts(for: "/old").requests >= number
            }
        }
    }

    @Test func aFreshResponseWithNoCacheIsRevalidated() async throws {
        let answer = Answer.content([1]).field("Cache-Control", "no-cache, max-age=600")
        server.answer("/a", with: answer)
        let session = session()
        for _ in 0..<2 { _ = try await session.data(from: url("/a")) }
        #expect(server.requests.map { $0["if-none-match"] != nil } == [false, true])
    }

    @Test(arguments: [
        ("max-age=600", 2), ("max-age=600, public", 1), ("max-age=600, s-maxage=60", 1),
        ("max-age=600, must-revalidate", 2), ("max-age=600, public, private", 2),
        ("max-age=600, private=\"x\", must-revalidate, public", 2),
    ])
    func anAnswerToCredentialsIsKeptWhereItSaysSo(_ rule: String, requests: Int) async throws {
        server.answer("/a", with: .content([1]).field("Cache-Control", rule))
        let session = session()
        var asked = try request("/a", "GET")
        asked.setValue("Bearer s", forHTTPHeaderField: "Authorization")
        for _ in 0..<2 { _ = try await session.data(for: asked) }
        #expect(server.counts(for: "/a").requests == requests)
    }

    @Test(arguments: [("Cache-Control", "no-store"), ("Range", "bytes=0-0"), ("If-Match", "*")])
    func aRequestOfItsOwnKindIsNotAnsweredFromTheCache(
        _ name: String,
        value: String
    ) async throws {
        server.answer("/a", with: .content([1, 2]).field("Cache-Control", "max-age=600"))
        let session = session()
        var asked = try request("/a", "GET")
        _ = try await session.data(for: asked)
        asked.setValue(value, forHTTPHeaderField: name)
        _ = try await session.data(for: asked)
        #expect(server.counts(for: "/a").requests == 2)
        #expect(try await session.data(from: url("/a")).0 == Data([1, 2]))
        #expect(server.counts(for: "/a").requests == 2)
    }

    @Test func aConfirmedAnswerHasTheNewFields() async throws {
        let answer = Answer.content([1])
        server.answer(
            "/a",
            with: answer.field("Cache-Control", "max-age=0").field("X-Name", "old"),
            answer.field("Cache-Control", "max-age=600").field("X-Name", "new")
        )
        let session = session()
        var names: [String?] = []
        for _ in 0..<3 {
            let response = try await session.data(from: url("/a")).1 as? HTTPURLResponse
            names.append(response?.value(forHTTPHeaderField: "X-Name"))
        }
        #expect(names == ["old", "new", "new"])
        #expect(server.counts(for: "/a").requests == 2)
    }

    @Test func anAnswerOfMoreThanATwentiethOfTheCacheIsNotKept() async throws {
        let rule = ("Cache-Control", "max-age=600")
        server.answer("/small", with: .content(data(4000)).field(rule.0, rule.1))
        server.answer("/large", with: .content(data(6000)).field(rule.0, rule.1))
        let session = session {
            $0.urlCache = URLCache(memoryCapacity: 100_000, diskCapacity: 0, diskPath: nil)
        }
        for path in ["/small", "/large", "/small", "/large"] {
            _ = try await session.data(from: url(path))
        }
        #expect(server.counts(for: "/small").requests == 1)
        #expect(server.counts(for: "/large").requests == 2)
    }

    @Test func anAnswerToOneUserIsNotGivenToAnother() async throws {
        let answers = (1...3).map { user in
            Answer.content([UInt8(user)]).field("Cache-Control", "max-age=600").tagged(nil)
        }
        server.answer("/a", with: answers)
        let session = session()
        func load(_ user: String) async throws -> Data {
            let text = "http://\(user)127.0.0.1:\(server.port)/a"
            return try await session.data(from: URL(text: text)).0
        }
        #expect(try await load("ann:1@") == Data([1]))
        #expect(try await load("") == Data([2]))
        #expect(try await load("bob:2@") == Data([3]))
        #expect(try await load("") == Data([2]))
        let sent = server.requests.map { $0["authorization"] }
        #expect(sent == ["Basic YW5uOjE=", nil, "Basic Ym9iOjI="])
    }

    @Test func aConfirmationMayForbidTheCopy() async throws {
        let answer = Answer.content([1])
        server.answer(
            "/a",
            with: answer.field("Cache-Control", "no-cache"),
            answer.field("Cache-Control", "no-store")
        )
        let session = session()
        for _ in 0..<3 { #expect(try await session.data(from: url("/a")).0 == Data([1])) }
        #expect(server.requests.map { $0["if-none-match"] != nil } == [false, true, false])
    }

    @Test(arguments: [("Age", "99999999999"), ("Cache-Control", "max-age=-1")])
    func aNumberOutOfRangeMakesAnAnswerStale(_ name: String, value: String) async throws {
        let answer = Answer.content([1]).field("Cache-Control", "max-age=600")
            .field("Expires", "Fri, 31 Dec 9999 23:59:59 GMT")
        server.answer("/a", with: answer.field(name, value))
        let session = session()
        for _ in 0..<2 { _ = try await session.data(from: url("/a")) }
        #expect(server.counts(for: "/a").requests == 2)
    }
}
