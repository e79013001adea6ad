import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

@testable import StageTransfer

/// Connections that one engine opens for several users.
@Suite(.server) struct ConnectionOwnersTests {
    let server = TestServer.current
    let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    static let content = noise(4096)

    @Test func noRequestUsesAConnectionOfAnotherUser() async throws {
        server.answer("/pack", with: .content(Self.content))
        try await withEngine { engine in
            for (user, connections) in [(1, 1), (1, 1), (2, 2), (2, 3), (1, 3)] {
                try await download(for: UInt32(user), by: engine)
                #expect(server.connectionCount == connections)
            }
        }
    }

    /// After a 417, libcurl repeats a request over any connection that it has kept.
    @Test func onlyTheOwnersRequestsAskForA100Continue() async throws {
        server.answer("/in", with: .content([]))
        try directory.directory.write(noise(3 << 20), to: "body", durably: false)
        let path = directory.directory.path.appending("body")
        try await withEngine { engine in
            for user: UInt32 in [1, 2] {
                var request = UploadRequest(url: server.url("/in"))
                request.method = .put
                request.user = user
                _ = try await engine.upload(request, from: try File.open(reading: path))
            }
        }
        #expect(server.requests.map { $0["expect"] } == ["100-continue", nil])
    }

    /// The kernel shows the owner of each socket (proc_pid_net(5)), which firewalls compare.
    @Test(.root("connections of other users take root"))
    func aConnectionBelongsToItsUser() async throws {
        let owners = Recorder()
        let port = ":" + String(server.port, radix: 16, uppercase: true)
        server.answer(
            "/pack",
            with: .content(Self.content).waiting { owners.append(ownersOfConnections(to: port)) }
        )
        try await withEngine { engine in
            for user: UInt32 in [0, 4242, 4343] { try await download(for: user, by: engine) }
        }
        // The server still holds the connection of the first user, whose requests may reuse it.
        #expect(owners.all == [["0"], ["0", "4242"], ["0", "4343"]])
    }

    @Test func aServersConnectionsAreKeptForAnotherUserOnceTheOwnersHaveEnded() {
        var owners = ConnectionOwners()
        let start = SuspendingClock.now
        let end = start + .seconds(10)
        let last = end + ConnectionOwners.idleTime + .seconds(1)
        let free = last + ConnectionOwners.idleTime
        var kept = [
            owners.begin(1, server: "a", at: start),
            owners.begin(1, server: "a", at: start),
            owners.begin(2, server: "a", at: start),
            owners.begin(2, server: "b", at: start),
        ]
        #expect(kept == [true, true, false, true])
        owners.end(server: "a", at: end)
        // The owner's other request still runs.
        kept = [owners.begin(2, server: "a", at: last)]
        owners.end(server: "a", at: last)
        kept.append(owners.begin(2, server: "a", at: free))
        kept.append(owners.begin(2, server: "a", at: free + .seconds(1)))
        kept.append(owners.begin(1, server: "a", at: free + .seconds(1)))
        #expect(kept == [false, false, true, false])
    }

    @Test func serversWithAnOwnerAreLimited() {
        var owners = ConnectionOwners()
        let start = SuspendingClock.now
        for number in 0..<ConnectionOwners.limit {
            _ = owners.begin(1, server: "\(number)", at: start)
            owners.end(server: "\(number)", at: start)
        }
        let kept = [
            owners.begin(2, server: "a", at: start),
            owners.begin(1, server: "0", at: start),
            owners.begin(2, server: "a", at: start + ConnectionOwners.idleTime + .seconds(1)),
        ]
        #expect(kept == [false, true, true])
    }

    /// Requests that libcurl may send over one connection have one owner.
    @Test func aProxyOrAServerHasOneOwner() throws {
        var configuration = TransferConfiguration()
        let proxy = "http://proxy.example:3128"
        configuration.proxies = ProxySettings(http: proxy, https: proxy)
        let keys = try [
            "http://a.example/1", "http://b.example/2", "https://A.example./3",
            "https://a.example/4", "http://127.0.0.1:8080/5",
        ].map { try configuration.connectionKey(for: TransferURL($0)) }
        #expect(keys == [proxy, proxy, "a.example:443", "a.example:443", "127.0.0.1:8080"])
    }

    /// Downloads the content on behalf of a user.
    private func download(for user: UInt32, by engine: TransferEngine) async throws {
        let part = try PartialFile.open("pack", in: directory.directory)
        var request = DownloadRequest(server.url("/pack"), content: Self.content)
        request.user = user
        _ = try await engine.download(request, to: part)
        try part.remove()
    }
}

/// Sets of users, recorded from any thread.
private final class Recorder: Sendable {
    private let list = Mutex<[Set<String>]>([])

    func append(_ users: Set<String>) { list.withLock { $0.append(users) } }

    var all: [Set<String>] { list.withLock { $0 } }
}

/// Returns the owners of established connections of this machine to a port, written as in `/proc/net/tcp`.
private func ownersOfConnections(to port: String) -> Set<String> {
    // An empty set fails the test.
    let bytes = (try? File.open(reading: "/proc/net/tcp").readAll(limit: 64 << 20)) ?? []
    let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n")
    return Set(
        lines.compactMap { line in
            let fields = line.split(separator: " ")
            guard fields.count > 7, fields[2].hasSuffix(port), fields[3] == "01" else {
                return nil
            }
            return String(fields[7])
        }
    )
}
