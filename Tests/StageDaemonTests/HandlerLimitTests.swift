import FoundationEssentials
import Glibc
import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Limits of concurrent handlers, and the resources that they share.
@Suite(.directory, .daemon, .server, .severalUsers)
struct HandlerLimitTests {
    private let daemon: DaemonProcess
    private let peer: Peer
    private let server = TestServer.current
    /// Sleep time that identifies the handlers of a test.
    private let mark = "3600.\(UInt32.random(in: 1_000_000_000 ... .max))"
    /// Users that every Debian has, under these numbers.
    private static let users: [(name: String, number: UInt32)] = [
        ("daemon", 1), ("bin", 2), ("sys", 3), ("games", 5), ("man", 6), ("lp", 7), ("mail", 8),
        ("news", 9), ("uucp", 10),
    ]

    init() async throws {
        daemon = try .required()
        try daemon.letOthersPass()
        let users = Self.users.map { "\"\($0.name)\"" }.joined(separator: ", ")
        // No handler ends before the test does.
        let limits = #""relaunchDelay": 36000, "launchLease": 36000"#
        try daemon.configure(
            #"{"settlingTime": 0, "retryBase": 0.05, \#(limits), "handlerUsers": [\#(users)]}"#
        )
        try await daemon.start()
        peer = try Peer(daemon)
        server.answer("/a", with: .content(noise(10)))
    }

    /// Makes five sessions of a user's, each with a handler and an event for it.
    private func makeSessions(of user: UInt32) async throws {
        let handler = #"{"handler": {"command": ["/bin/sleep", "\#(mark)"]}}"#
        let url = server.url("/a")
        let task = #"{"tasks": [{"token": "t", "kind": "download", "url": "\#(url)"}]}"#
        let script = """
            for name in a b c d e; do
                "$@" PUT /v1/sessions/$name "$HANDLER" && "$@" POST /v1/sessions/$name/tasks "$TASK"
            done
            """
        let variables = ["/usr/bin/env", "HANDLER=\(handler)", "TASK=\(task)"]
        let answers = try await peer.run(
            as: user,
            user,
            variables + ["/bin/sh", "-c", script, "sh"] + peer.command("ask")
        )
        #expect(answers.split(separator: "\n").count { $0 == "200" } == 10, "\(answers)")
    }

    /// The processes of handlers, by user.
    private func handlers() throws -> [UInt32: [pid_t]] {
        var found: [UInt32: [pid_t]] = [:]
        let processes = try Directory.open("/proc")
        for entry in try processes.entries() {
            guard let process = pid_t(entry.path.string),
                // A process that has ended meanwhile does not count.
                let line = try? text(of: FilePath("/proc/\(process)/cmdline")),
                line == "/bin/sleep\0\(mark)\0",
                let status = try? processes.status(entry.path)
            else { continue }
            found[status.owner, default: []].append(process)
        }
        return found
    }

    private func count() throws -> Int { try handlers().values.reduce(0) { $0 + $1.count } }

    @Test func aUserHasFourHandlersAndAllUsersThirtyTwo() async throws {
        defer {
            for processes in ((try? handlers()) ?? [:]).values {
                for process in processes { kill(process, SIGKILL) }
            }
        }
        let users = Self.users.map(\.number)
        try await makeSessions(of: users[0])
        try await poll("there are \(try count())") { try count() == 4 }
        for user in users.dropFirst() { try await makeSessions(of: user) }
        try await poll("there are \(try count())") { try count() == 32 }
        // No further handler is started in this time.
        let began = ContinuousClock.now
        while ContinuousClock.now - began < .seconds(2) {
            #expect(try count() <= 32)
            try await Task.sleep(for: .milliseconds(50))
        }
        #expect(try handlers().values.allSatisfy { $0.count <= 4 })
        // When one handler ends, another one is started.
        let ended = try #require(try handlers()[users[0]]?.first)
        kill(ended, SIGKILL)
        try await poll("there are \(try count())") {
            let handlers = try handlers().values.flatMap { $0 }
            return handlers.count == 32 && !handlers.contains(ended)
        }
    }
}
