import FoundationEssentials
import Glibc
import StageControl
import StageDigest
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Stagings of several users with one daemon, which runs as root.
@Suite(.directory, .daemon, .server, .severalUsers, .timeLimit(.minutes(15)))
struct StagingUserTests {
    private let daemon: DaemonProcess
    private let peer: Peer
    private let server = TestServer.current
    /// Two users that every Debian has, who share a group, and root.
    private static let nobody: (UInt32, UInt32) = (65534, 65534)
    private static let sync: (UInt32, UInt32) = (4, 65534)
    private static let root: (UInt32, UInt32) = (0, 0)

    init() async throws {
        daemon = try .required()
        try daemon.letOthersPass()
        try daemon.configure(
            #"{"settlingTime": 0, "retryBase": 0.05, "handlerUsers": ["nobody", "sync"]}"#
        )
        try await daemon.start()
        peer = try Peer(daemon)
        server.answer("/manifest.json", with: .content(try Self.manifest(archive: "level.bin")))
        server.answer("/level.bin", with: .content(Self.content))
    }

    private static let content = noise(100_000)

    /// A manifest of one pack, whose archive is at a URL.
    private static func manifest(archive url: String) throws -> [UInt8] {
        let archive = PackArchive(
            url: url,
            format: .file,
            size: ByteCount(content.count),
            digest: Digest(of: content)
        )
        let pack = Pack(
            id: try PackID("level"),
            version: 1,
            policy: .onDemand,
            archive: archive,
            installedSize: ByteCount(content.count),
            fileCount: 1
        )
        return Manifest(
            application: try ApplicationID("net.example.game"),
            revision: 1,
            packs: [pack]
        )
        .json()
    }

    /// Creates a directory of a user for a container, which other users cannot enter.
    private func makeContainer(_ name: String, of user: (UInt32, UInt32)) throws -> FilePath {
        let path = try Directory.open(daemon.directory).makeDirectory(FilePath(name)).path
        let mode = unsafe chmod(path.string, 0o700)
        let owner = unsafe chown(path.string, user.0, user.1)
        try #require(mode == 0 && owner == 0)
        return path
    }

    /// Requests the pack as a user; returns the status of the response.
    private func ask(
        as user: (UInt32, UInt32),
        into container: FilePath,
        session: String = "stagepack%2F1%2F1",
        manifest: String = "/manifest.json",
        _ more: String = "",
        privileges: [String] = ["--clear-groups"]
    ) async throws -> Int {
        let path = "/v1/sessions/\(session)"
        let made = try await peer.ask(
            as: user.0,
            user.1,
            "PUT",
            path,
            #"{"isTransient": true}"#,
            privileges: privileges
        )
        #expect(made.status == 200, "\(made)")
        let job = """
            {"manifests": ["\(server.url(manifest))"], "container": "\(container)", \
            "packs": ["level"]\(more)}
            """
        let task = #"{"token": "1", "kind": "staging", "url": "x", "staging": \#(job)}"#
        return try await peer.ask(
            as: user.0,
            user.1,
            "POST",
            path + "/tasks",
            #"{"tasks": [\#(task)]}"#,
            privileges: privileges
        )
        .status
    }

    /// The owners of everything below a directory.
    private func owners(below path: FilePath) throws -> Set<UInt32> {
        let directory = try Directory.open(path)
        var owners: Set<UInt32> = []
        for entry in try directory.entries() {
            let status = try directory.status(entry.path)
            if let status { owners.insert(status.owner) }
            if entry.kind == .directory {
                owners.formUnion(try self.owners(below: path.appending(entry.name)))
            }
        }
        return owners
    }

    @Test func eachUserHasTheirContainerWritten() async throws {
        let users = [Self.nobody, Self.sync, Self.root]
        let containers = try users.map { try makeContainer("c\($0.0)", of: $0) }
        for (user, container) in zip(users, containers) {
            #expect(try await ask(as: user, into: container) == 200)
        }
        for (user, container) in zip(users, containers) {
            let link = container.pushing("packs/level")
            try await poll("nothing is staged for \(user)") { FileStatus.exists(link) }
            try await poll("the session stays") {
                try await daemon.client.sessions(all: true).isEmpty
            }
            #expect(try owners(below: container) == [user.0])
        }
    }

    /// Returns the worker process of the daemon.
    private func worker() throws -> pid_t? {
        let parent = try #require(daemon.process)
        for entry in try Directory.open("/proc").entries() {
            guard let process = pid_t(entry.path.string),
                // A process that has ended meanwhile does not count.
                let line = try? text(of: FilePath("/proc/\(process)/cmdline")),
                line.hasSuffix("\0staging-worker\0"),
                let status = try? text(of: FilePath("/proc/\(process)/status")),
                status.contains("\nPPid:\t\(parent)\n")
            else { continue }
            return process
        }
        return nil
    }

    @Test func noProcessOfItsUserTakesTheSocketOfAWorker() async throws {
        server.answer("/level.bin", with: .content(noise(100_000)).stalled(after: 1000))
        let container = try makeContainer("c", of: Self.nobody)
        #expect(try await ask(as: Self.nobody, into: container) == 200)
        try await poll("no worker asks") { !server.requests(for: "/level.bin").isEmpty }
        let process = try #require(try worker())
        // The kernel checks access for pidfd_getfd(2) and ptrace(2) by the same rule as for this file.
        let read = ["/bin/sh", "-c", "! cat \"$0\"", "/proc/\(process)/environ"]
        #expect(try await peer.run(as: 65534, 65534, read) == "")
        let status = ["/bin/cat", "/proc/\(process)/status"]
        #expect(try await peer.run(as: 65534, 65534, status).contains("\nUid:\t65534\t"))
    }

    /// Only root may be able to read the daemon's configuration.
    @Test func aWorkerHasNoPasswordOfTheDaemonsProxy() async throws {
        let url = "http://a.invalid/level.bin"
        server.answer("/proxied.json", with: .content(try Self.manifest(archive: url)))
        server.answer(url, with: .status(407))
        let proxy = server.baseURL.replacing("://", with: "://corp:S3cretPw@")
        try await daemon.kill()
        try daemon.configure(
            #"{"settlingTime": 0, "handlerUsers": ["nobody"], "httpProxy": "\#(proxy)"}"#
        )
        try await daemon.start()
        let own = try makeContainer("c", of: Self.nobody)
        #expect(try await ask(as: Self.nobody, into: own, manifest: "/proxied.json") == 200)
        try await poll("it says no reason") {
            try await peer.ask(as: 65534, 65534, "GET", "/v1/tasks").body
                .contains("which it keeps from the workers of users")
        }
        #expect(server.requests(for: url).allSatisfy { $0["proxy-authorization"] == nil })
        let roots = try makeContainer("root", of: Self.root)
        #expect(try await ask(as: Self.root, into: roots, manifest: "/proxied.json") == 200)
        try await poll("root's worker has no password") {
            server.requests(for: url).contains { $0["proxy-authorization"] != nil }
        }
    }

    @Test func aWorkerCannotWriteWhatItsUserCannot() async throws {
        let container = try makeContainer("root", of: Self.root)
        #expect(try await ask(as: Self.nobody, into: container) == 200)
        try await poll("it says no reason") {
            let tasks = try await peer.ask(as: 65534, 65534, "GET", "/v1/tasks").body
            let sessions = try await peer.ask(as: 65534, 65534, "GET", "/v1/sessions").body
            return tasks.contains("Permission denied") || sessions == "{\"sessions\":[]}\n"
        }
        #expect(try Directory.open(container).entries().isEmpty)
    }

    @Test func aStagingThatGivesAWorkerMoreRightsIsRefused() async throws {
        let container = try makeContainer("c", of: Self.nobody)
        // The client's confinement would not apply to the worker.
        let confined = try await ask(
            as: Self.nobody,
            into: container,
            privileges: ["--clear-groups", "--no-new-privs"]
        )
        #expect(confined == 403)
        let variable = try await ask(
            as: Self.nobody,
            into: container,
            #", "environment": {"LD_PRELOAD": "/tmp/a.so"}"#
        )
        #expect(variable == 422)
        let both = try await ask(as: Self.nobody, into: container, #", "event": "install""#)
        #expect(both == 422)
        let long = #", "applicationVersion": "\#(String(repeating: "1", count: 70_000))""#
        #expect(try await ask(as: Self.nobody, into: container, long) == 422)
        // A process without a group does not regain it through another process's session.
        #expect(
            try await peer.ask(
                as: 65534,
                65534,
                "PUT",
                "/v1/sessions/a%2Fb",
                #"{"isTransient": true}"#,
                privileges: ["--groups", "65534,100"]
            ).status == 200
        )
        let job = #"{"application": "net.example.game", "packs": ["level"]}"#
        let task = #"{"token": "1", "kind": "staging", "url": "x", "staging": \#(job)}"#
        let body = #"{"tasks": [\#(task)]}"#
        let fewer = try await peer.ask(as: 65534, 65534, "POST", "/v1/sessions/a%2Fb/tasks", body)
        #expect(fewer.status == 403, "\(fewer)")
        // A permanent session has no stagings, and cannot be made a transient one.
        let stays = try await peer.ask(as: 65534, 65534, "PUT", "/v1/sessions/s", "{}")
        #expect(stays.status == 200)
        let refused = try await peer.ask(as: 65534, 65534, "POST", "/v1/sessions/s/tasks", body)
        #expect(refused.status == 422, "\(refused)")
        let changed = #"{"isTransient": true}"#
        let change = try await peer.ask(as: 65534, 65534, "PUT", "/v1/sessions/s", changed)
        #expect(change.status == 422, "\(change)")
        #expect(try Directory.open(container).entries().isEmpty)
    }

    @Test func aMemberOfTheGroupHasNothingStagedAsTheOwner() async throws {
        let container = try makeContainer("c", of: Self.nobody)
        let made = try await peer.ask(
            as: 65534,
            65534,
            "PUT",
            "/v1/sessions/s%2F1",
            #"{"isTransient": true, "group": "nogroup"}"#
        )
        #expect(made.status == 200)
        let job = """
            {"manifests": ["\(server.url("/manifest.json"))"], "container": "\(container)", \
            "packs": ["level"]}
            """
        let task = #"{"token": "1", "kind": "staging", "url": "x", "staging": \#(job)}"#
        let answer = try await peer.ask(
            as: Self.sync.0,
            Self.sync.1,
            "POST",
            "/v1/sessions/s%2F1/tasks?user=65534",
            #"{"tasks": [\#(task)]}"#
        )
        #expect(answer.status == 403, "\(answer)")
        #expect(try Directory.open(container).entries().isEmpty)
    }

    @Test func aUserHasTwoWorkersAtMost() async throws {
        server.answer(
            "/manifest.json",
            with: Answer.content(noise(4 << 20)).slowed(to: 16 << 10)
        )
        for number in 1...4 {
            let container = try makeContainer("c\(number)", of: Self.nobody)
            let session = "stagepack%2F\(number)%2F1"
            #expect(try await ask(as: Self.nobody, into: container, session: session) == 200)
        }
        try await poll("two workers never run") {
            let tasks = try await daemon.client.tasks(all: true)
            return tasks.count { $0.state == .running } == 2
                && tasks.count { $0.pendingReasons.map(\.kind) == [.slot] } == 2
        }
        for session in try await daemon.client.sessions(all: true) {
            let name = session.identifier.replacing("/", with: "%2F")
            let path = "/v1/sessions/\(name)"
            #expect(try await peer.ask(as: 65534, 65534, "DELETE", path).status == 204)
        }
        let tasks = try await daemon.client.tasks(all: true)
        #expect(tasks.isEmpty)
    }
}
