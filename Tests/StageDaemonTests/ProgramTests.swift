import FoundationEssentials
import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Behaviour of the program when it cannot start, and when its files change while it runs.
@Suite(.directory, .daemon, .server)
struct ProgramTests {
    private let daemon: DaemonProcess
    private let server = TestServer.current

    init() throws { daemon = try .required() }

    static let faults = [
        (#"{"conections": 3}"#, "there is no setting 'conections'"),
        (#"{"connections": "3"}"#, "'connections': "), ("{", "not JSON: line 1, column 2: "),
        (#"{"certificateAuthorities": "/nonexistent/a.pem"}"#, "'certificateAuthorities': "),
    ]

    @Test(arguments: faults) func aFaultInTheConfigurationEndsIt(
        json: String,
        words: String
    ) async throws {
        try daemon.configure(json)
        try daemon.launch()
        #expect(try await daemon.end() == 78)
        #expect(try daemon.said().hasPrefix("stagepackd: error: "))
        #expect(try daemon.said().contains(words))
        let lines = try daemon.said().split(separator: "\n")
        #expect(Array(lines.dropFirst()) == ["hint: 'man stagepackd.json' describes the settings"])
    }

    @Test func authoritiesThatGoAndComeBackAreWaitedFor() async throws {
        let front = try await TLSFront(port: server.port, below: daemon.directory)
        try daemon.configure(
            #"{"certificateAuthorities": "\#(front.certificate)", "retryBase": 3600}"#
        )
        try await daemon.start()
        try await daemon.makeSession()
        let directory = try Directory.open(daemon.directory)
        try directory.rename("front.pem", to: "aside.pem", in: directory)
        server.answer("/a", with: .content([1, 2, 3]))
        let id = try await daemon.download("\(front.baseURL)/a")
        try await daemon.wait(for: [.backoff], of: id)
        let problem = try await daemon.client.task(id).pendingReasons.first?.problem
        #expect(problem?.contains("the trusted authorities cannot be loaded") == true)
        try directory.rename("aside.pem", to: "front.pem", in: directory)
        try await daemon.change(id, to: .unpaused)
        #expect(try await daemon.outcomes().map(\.gist) == ["1 completed of \(id)"])
    }

    @Test func eachReloadOfTheConfigurationIsAnswered() async throws {
        func count(_ words: String) throws -> Int {
            try daemon.said().split(separator: "\n").count { $0.contains(words) }
        }
        try daemon.configure("{}")
        try await daemon.start()
        try daemon.configure("{")
        for number in 1...2 {
            daemon.send(SIGHUP)
            try await poll("no answer \(number)") {
                try count("The configuration stays") == number
            }
        }
        try daemon.configure(#"{"connections": 17, "tasksPerUser": 5}"#)
        for number in 1...2 {
            daemon.send(SIGHUP)
            try await poll("no answer \(number)") { try count("Configuration read") == number }
        }
        #expect(try count("configuration.afterRestart=connections") == 2)
        #expect(try await daemon.kill(SIGTERM) == 0)
    }

    @Test func aRelativeStateDirectoryIsInTheWorkingDirectory() async throws {
        let process = try StartedProcess(
            [
                "/bin/sh", "-c", #"cd "$1" && exec "$2" --state st --socket control.sock"#, "sh",
                daemon.directory.string, try DaemonProcess.program.string,
            ],
            log: daemon.log
        )
        try await poll("no daemon: \(try daemon.said())") {
            // An error means that the daemon does not answer yet.
            process.status != nil
                || (try? daemon.client.answer(to: .status, timeout: .seconds(5))) != nil
        }
        let status = try await daemon.client.status()
        #expect(status.staged == daemon.directory.appending("st/staged/\(geteuid())").string)
        process.send(SIGTERM)
        try await poll { process.status == 0 }
    }

    @Test func thereIsOneDaemonForOneDirectory() async throws {
        try await daemon.start()
        let second = DaemonProcess(in: daemon.directory)
        defer { second.abandon() }
        try second.launch()
        #expect(try await second.end() == 75)
        let process = try #require(daemon.process)
        let message = """
            stagepackd: error: another stagepackd uses '\(daemon.state)': process \(process)
            hint: end it with 'kill \(process)', or choose another directory with '--state'
            """
        #expect(try daemon.said().contains(message))
        // The first daemon still has its socket.
        #expect(try await daemon.client.status().process == Int(try #require(daemon.process)))
        #expect(try await daemon.kill(SIGTERM) == 0)
    }

    @Test func aSocketIsNotMadeWhereOthersCouldReplaceIt() async throws {
        #expect(unsafe chmod(daemon.directory.string, 0o777) == 0)
        try daemon.launch()
        #expect(try await daemon.end() != 0)
        #expect(
            try daemon.said().contains(
                "other users may write in its directory: name a socket in a directory of your own"
            )
        )
        // With the sticky bit, as in '/tmp', they may not.
        #expect(unsafe chmod(daemon.directory.string, 0o1777) == 0)
        try await daemon.start()
        #expect(try await daemon.kill(SIGTERM) == 0)
    }

    @Test func aDamagedJournalIsMovedAside() async throws {
        try await daemon.start()
        try await daemon.makeSession()
        try await daemon.kill()
        let state = try Directory.open(daemon.state)
        for name in ["journal.sqlite-wal", "journal.sqlite-shm"] as [FilePath.Component] {
            _ = try state.remove(name)
        }
        let content = noise(50_000)
        try state.write(content, to: "journal.sqlite", durably: false)
        try await daemon.start()
        #expect(try await daemon.client.sessions() == [])
        let kept = try state.entries().map(\.path.string)
            .filter { $0.hasPrefix("journal.sqlite.damaged-") && !$0.hasSuffix("-wal") }
        #expect(kept.count == 1)
        #expect(try bytes(of: daemon.state.appending(try #require(kept.first))) == content)
        server.answer("/a", with: .content([1]))
        try await daemon.makeSession()
        try await daemon.download(server.url("/a"))
        #expect(try await daemon.outcomes().map(\.kind) == [.completed])
    }

    @Test func aTransferThatFailsIsLoggedInTheForeground() async throws {
        try await daemon.start()
        try await daemon.makeSession()
        server.answer("/gone", with: .status(404))
        let id = try await daemon.download(server.url("/gone"))
        #expect(try await daemon.outcomes().map(\.kind) == [.failed])
        try await poll("found \(try daemon.said())") {
            let lines = try daemon.said().split(separator: "\n")
            return lines.contains { line in
                ["A transfer failed", "task=\(id)", "session=s", "status 404"]
                    .allSatisfy { line.contains($0) }
            }
        }
    }

    @Test func aTaskHasNoMoreTimeThanItsSessionGivesIt() async throws {
        try daemon.configure(#"{"retryBase": 0.1}"#)
        try await daemon.start()
        try await daemon.makeSession { $0.resourceTimeout = 0.5 }
        server.answer("/a", with: Answer.content(noise(1 << 20)).stalled(after: 1000))
        server.answer("/b", with: .status(503))
        let ids = [
            try await daemon.download(server.url("/a")),
            try await daemon.download(server.url("/b")),
        ]
        let events = try await daemon.outcomes()
        #expect(events.map(\.task).map { $0 ?? 0 }.sorted() == ids)
        #expect(events.map(\.failure?.kind) == [.timedOut, .timedOut])
        #expect(events.compactMap(\.sequence) == [1, 2])
    }

    @Test func aChallengeWaitsForItsAnswer() async throws {
        try await daemon.start()
        try await daemon.makeSession { $0.answersChallenges = true }
        let refusal = Answer.status(401).field("WWW-Authenticate", "Basic realm=\"x\"")
        server.answer("/a", with: refusal, .content([1, 2, 3]))
        server.answer("/b", with: refusal)
        let id = try await daemon.download(server.url("/a"))
        let other = try await daemon.download(server.url("/b"))
        let challenges = try await daemon.events { $0.sequence == 2 }.filter { $0.sequence != nil }
        #expect(challenges.map(\.kind) == [.challenged, .challenged])
        #expect(challenges.map(\.challenge) == ["Basic realm=\"x\"", "Basic realm=\"x\""])
        try await daemon.wait(for: [.authentication], of: id)
        try await daemon.kill()
        try await daemon.start()
        try await daemon.wait(for: [.authentication], of: id)
        var change = TransferChange()
        change.authorization = "Basic eDp5"
        try await daemon.client.change(id, by: change)
        try await daemon.wait(for: .completed, of: id)
        change = TransferChange()
        change.rejectsChallenge = true
        try await daemon.client.change(other, by: change)
        let events = try await daemon.outcomes(after: 2)
        #expect(events.map(\.gist) == ["3 completed of \(id)", "4 failed of \(other)"])
        #expect(events[1].failure?.kind == .refused)
        #expect(events[1].failure?.status == 401)
        #expect(server.requests(for: "/a").map { $0["authorization"] } == [nil, "Basic eDp5"])
    }

    @Test func anUploadSendsTheFileAsItWasAtItsCreation() async throws {
        let directory = try TemporaryDirectory.required()
        let nginx = try await NginxServer(
            below: try directory.makeDirectory("nginx").path,
            rate: "0"
        )
        try await daemon.start()
        try await daemon.makeSession()
        let body = noise(3 << 20)
        try directory.write(body, to: "file", durably: false)
        var request = TransferRequest(
            token: "u",
            kind: .upload,
            url: "\(nginx.baseURL)/up/file"
        )
        request.method = "PUT"
        request.file = directory.path.appending("file").string
        let ids = try await daemon.client.createTasks([request], in: "s")
        _ = try directory.remove("file")
        #expect(try await daemon.client.createTasks([request], in: "s") == ids)
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(ids[0])"])
        #expect(events[0].response?.status == 201)
        #expect(try bytes(of: nginx.root.appending("up/file")) == body)
        #expect(try daemon.names(in: "snapshots") == [])
    }

    @Test(.mountedFileSystems)
    func aFullDiskIsWaitedFor() async throws {
        let state = daemon.state.string
        // The file system is unmounted with the daemon; a file that fills it is removed through /proc.
        let script = """
            mkdir -p "$1" && mount -t tmpfs -o size=6m none "$1" && head -c 3000000 /dev/zero >"$1/filler"
            shift; exec "$@"
            """
        try daemon.configure(#"{"retryBase": 0.05, "reserve": 0}"#)
        try await daemon.start(
            by: ["/usr/bin/unshare", "-m", "/bin/sh", "-c", script, "sh", state]
        )
        try await daemon.makeSession()
        let body = noise(4 << 20)
        server.answer("/a", with: .content(body))
        let id = try await daemon.download(server.url("/a"))
        try await daemon.wait(for: [.disk], of: id)
        let process = try #require(daemon.process)
        let inside = FilePath("/proc/\(process)/root\(state)")
        _ = try Directory.open(inside).remove("filler")
        let events = try await daemon.outcomes(within: .seconds(120))
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        let path = inside.appending("staged/\(geteuid())/\(id)")
        #expect(try bytes(of: path) == body)
    }
}
