import Foundation
import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Kills at random moments, while many transfers are running; `STAGEPACK_TEST_KILLS` is the number of kills.
@Suite(
    .directory,
    .daemon,
    .enabled(if: FileStatus.exists("/usr/bin/apt-get"), "nginx is Debian's")
)
struct RandomKillTests {
    private static let kills =
        ProcessInfo.processInfo.environment["STAGEPACK_TEST_KILLS"].flatMap { Int($0) } ?? 40
    private static let sizes = [1000, 300_000, 3_000_000, 8_000_000]

    @Test func nothingIsLostOrReportedTwiceAfterAnyNumberOfKills() async throws {
        let daemon = try DaemonProcess.required()
        let directory = try TemporaryDirectory.required().makeDirectory("nginx")
        let nginx = try await NginxServer(below: directory.path, rate: "400k")
        var bodies: [[UInt8]] = []
        for index in 0..<50 {
            let seed = UInt64(index + 1)
            bodies.append(noise(Self.sizes[index % 4], seed: seed))
            let name = try #require(FilePath.Component("\(index)"))
            try Directory.open(nginx.root).write(bodies[index], to: name, durably: false)
        }
        try daemon.configure(
            #"{"connections": 50, "connectionsPerHost": 50, "retryBase": 0.1, "settlingTime": 0}"#
        )
        try await daemon.start()
        try await daemon.makeSession { $0.maximumConnectionsPerHost = 50 }
        var chain = KillChain(daemon: daemon, requests: [], kills: Self.kills)
        for (index, body) in bodies.enumerated() {
            let url = "\(nginx.baseURL)/\(index)"
            var request = TransferRequest(token: "\(index)", kind: .download, url: url)
            if index % 2 == 1 { request.sha256 = sha256(body) }
            chain.requests.append(request)
        }
        try await chain.run()
        #expect(chain.seen.keys.sorted() == Array(1...50))
        #expect(Set(chain.seen.values).count == 50)
        let tasks = try await daemon.client.tasks(in: "s")
        #expect(tasks.map(\.id).sorted() == chain.ids.sorted())
        for task in tasks {
            let index = try #require(Int(task.request.token))
            let path = daemon.state.appending("staged/\(geteuid())/\(task.id)")
            #expect(try bytes(of: path) == bodies[index])
        }
        let leftOver = try daemon.names(in: "parts")
        #expect(leftOver == [])
        // nginx may log a response after its client has received it.
        try await poll("the log lacks a file") { try nginx.counts().count == bodies.count }
        try check(try nginx.counts(), bodies.map(\.count), chain)
    }

    /// Compares the bytes that the server sent with their limit: each file once, and for each request that a kill has ended at
    /// most one checkpoint, or the file if it is smaller.
    private func check(
        _ counts: [String: (bytes: Int, requests: Int)],
        _ sizes: [Int],
        _ chain: KillChain
    ) throws {
        var (sent, bound) = (0, 0)
        for (index, size) in sizes.enumerated() {
            let count = try #require(counts["/\(index)"])
            #expect(count.requests <= chain.deaths + 1)
            #expect(count.bytes <= size + (count.requests - 1) * min(size, 8 << 20))
            sent += count.bytes
            bound += size + (count.requests - 1) * min(size, 8 << 20)
        }
        print("\(chain.deaths) kills: \(sizes.reduce(0, +)) bytes, \(sent) sent, bound \(bound)")
    }
}

/// Client that continues across crashes of the daemon.
private struct KillChain {
    let daemon: DaemonProcess
    var requests: [TransferRequest]
    let kills: Int
    var ids: [Int64] = []
    /// The events that were seen, by their numbers.
    private(set) var seen: [Int64: String] = [:]
    private(set) var deaths = 0
    private var random = SeededGenerator(seed: 1)

    init(daemon: DaemonProcess, requests: [TransferRequest], kills: Int) {
        self.daemon = daemon
        self.requests = requests
        self.kills = kills
    }

    mutating func run() async throws {
        while deaths < kills {
            let moment = Duration.milliseconds(Int.random(in: 0..<250, using: &random))
            async let death: Void = kill(after: moment)
            // Requests without a response are repeated.
            try? await talk()
            try await death
            deaths += 1
            try await daemon.start()
        }
        try await create()
        note(try await daemon.outcomes(within: .seconds(300)))
    }

    private func kill(after moment: Duration) async throws {
        try await Task.sleep(for: moment)
        try await daemon.kill()
    }

    private mutating func create() async throws {
        let ids = try await daemon.client.createTasks(requests, in: "s")
        if self.ids.isEmpty { self.ids = ids }
        #expect(ids == self.ids)
    }

    private mutating func talk() async throws {
        if ids.isEmpty || Bool.random(using: &random) { try await create() }
        let stream = try await daemon.client.events(of: "s")
        // The stream ends with the daemon.
        for try await event in stream { note([event]) }
    }

    private mutating func note(_ events: [SessionEvent]) {
        for event in events {
            guard let number = event.sequence else { continue }
            #expect(event.kind == .completed, "\(event)")
            #expect(seen[number] == nil || seen[number] == event.gist)
            seen[number] = event.gist
        }
    }
}
