import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The daemon of all users, and two users besides root.
///
/// The users are those that every Debian has: `nobody` and `sync` share the group `nogroup`, and `daemon` is
/// in neither.
@Suite(.directory, .daemon, .server, .severalUsers)
struct UserTests {
    private let daemon: DaemonProcess
    private let peer: Peer
    private let server = TestServer.current
    private let nobody: (UInt32, UInt32) = (65534, 65534)
    private let sync: (UInt32, UInt32) = (4, 65534)
    private let stranger: (UInt32, UInt32) = (1, 1)

    init() async throws {
        daemon = try .required()
        try daemon.letOthersPass()
        try daemon.configure(
            #"{"settlingTime": 0, "retryBase": 0.05, "handlerUsers": ["nobody"]}"#
        )
        try await daemon.start()
        peer = try Peer(daemon)
        server.answer("/a", with: .content(noise(1000)))
        server.answer("/u", with: .status(201))
    }

    private func ask(
        _ user: (UInt32, UInt32),
        _ method: String,
        _ path: String,
        _ body: String = ""
    ) async throws -> (status: Int, body: String) {
        try await peer.ask(as: user.0, user.1, method, path, body)
    }

    private func task(
        _ token: String = "t",
        _ more: String = "",
        path: String = "/a"
    ) -> String {
        #"{"tasks": [{"token": "\#(token)", "kind": "download", "url": "\#(server.url(path))"\#(more)}]}"#
    }

    @Test func aUserSeesNothingOfAnother() async throws {
        #expect(try await ask(nobody, "PUT", "/v1/sessions/s", "{}").status == 200)
        let created = try await ask(
            nobody,
            "POST",
            "/v1/sessions/s/tasks",
            task("t", #", "isSuspended": true, "headers": {"Authorization": "Basic secret"}"#)
        )
        #expect(created.body == "{\"ids\":[1]}\n")
        for (method, path, body) in [
            ("GET", "/v1/sessions/s", ""), ("DELETE", "/v1/sessions/s", ""),
            ("GET", "/v1/sessions/s/tasks", ""), ("GET", "/v1/sessions/s/events", ""),
            ("POST", "/v1/sessions/s/tasks", task("x")), ("POST", "/v1/sessions/s/extend", ""),
            ("POST", "/v1/sessions/s/acknowledge", "{\"sequence\":0}"), ("GET", "/v1/tasks/1", ""),
            ("PATCH", "/v1/tasks/1", "{\"state\":\"cancelled\"}"),
        ] {
            let answer = try await ask(stranger, method, path, body)
            #expect(answer.status == 404, "\(method) \(path): \(answer)")
        }
        #expect(try await ask(stranger, "GET", "/v1/sessions").body == "{\"sessions\":[]}\n")
        #expect(try await ask(stranger, "GET", "/v1/tasks").body == "{\"tasks\":[]}\n")
        #expect(try await ask(stranger, "GET", "/v1/tasks?all=1").status == 403)
        // The response is the same if the resource does not exist.
        let (other, none) = try await (
            ask(stranger, "GET", "/v1/tasks/1"), ask(stranger, "GET", "/v1/tasks/2")
        )
        #expect(other.body == none.body.replacing("task 2", with: "task 1"))
        // Another user's session of the same name is another session.
        #expect(try await ask(stranger, "PUT", "/v1/sessions/s", "{}").status == 200)
        #expect(try await ask(stranger, "GET", "/v1/sessions/s/tasks").body == "{\"tasks\":[]}\n")
        // Root sees the sessions and tasks of other users only on request.
        #expect(try await daemon.client.sessions() == [])
        #expect(try await daemon.client.sessions(all: true).map(\.user) == [65534, 1])
        let tasks = try await daemon.client.tasks(all: true)
        #expect(tasks.map(\.state) == [.suspended])
        #expect(tasks[0].request.headers == ["Authorization": "(not shown)"])
    }

    @Test func aStagedFileIsItsUsersAlone() async throws {
        _ = try await ask(nobody, "PUT", "/v1/sessions/s", "{}")
        _ = try await ask(nobody, "POST", "/v1/sessions/s/tasks", task())
        try await peer.wait(forEvents: 1, of: nobody.0)
        let path = daemon.state.appending("staged/65534/1")
        let read = ["/bin/cat", path.string]
        #expect(try await peer.run(as: nobody.0, nobody.1, read).utf8.count > 0)
        for user in [stranger, sync] {
            let failing = ["/bin/sh", "-c", "! cat \"$0\" && ! stat \"$0\"", path.string]
            #expect(try await peer.run(as: user.0, user.1, failing) == "")
            for name in ["staged", "staged/65534", "parts", "snapshots"] {
                let list = ["/bin/sh", "-c", "! ls \"$0\"", daemon.state.appending(name).string]
                #expect(try await peer.run(as: user.0, user.1, list) == "")
            }
            let journal = daemon.state.appending("journal.sqlite").string
            _ = try await peer.run(
                as: user.0,
                user.1,
                ["/bin/sh", "-c", "! cat \"$0\" \"$0-wal\" \"$0-shm\"", journal]
            )
        }
        let owner = ["/usr/bin/stat", "--format=%u", path.string]
        #expect(try await peer.run(as: nobody.0, nobody.1, owner) == "65534\n")
        // The user may move the file away.
        let target = try daemon.makeOpenDirectory().appending("moved")
        let move = ["/bin/mv", path.string, target.string]
        _ = try await peer.run(as: nobody.0, nobody.1, move)
        let body = "{\"sequence\":1}"
        #expect(
            try await ask(nobody, "POST", "/v1/sessions/s/acknowledge", body).status == 204
        )
    }

    @Test func aSessionOfAGroupIsItsMembers() async throws {
        let body = #"{"group": "nogroup"}"#
        #expect(try await ask(stranger, "PUT", "/v1/sessions/s", body).status == 403)
        #expect(try await ask(nobody, "PUT", "/v1/sessions/s", body).status == 200)
        #expect(try await ask(nobody, "POST", "/v1/sessions/s/tasks", task()).status == 200)
        try await peer.wait(forEvents: 1, of: nobody.0)
        #expect(try await ask(sync, "GET", "/v1/tasks/1").status == 200)
        #expect(try await ask(sync, "GET", "/v1/tasks").body.contains("\"id\":1"))
        #expect(try await ask(stranger, "GET", "/v1/tasks/1").status == 404)
        // Without a user in the request, the name is that of the client's own session.
        #expect(try await ask(sync, "DELETE", "/v1/sessions/s").status == 404)
        let named = "/v1/sessions/s?user=\(nobody.0)"
        #expect(try await ask(stranger, "DELETE", named).status == 404)
        #expect(try await ask(sync, "DELETE", named).status == 204)
        #expect(try await ask(nobody, "GET", "/v1/sessions/s").status == 404)
    }

    /// The received bytes are kept for the owner of the session if any member cancels the task.
    @Test func aMemberOfTheGroupResumesADownload() async throws {
        let body = noise(3 << 20)
        let answer = Answer.content(body)
        server.answer("/a", with: answer.stalled(after: 2 << 20), answer)
        _ = try await ask(nobody, "PUT", "/v1/sessions/s", #"{"group": "nogroup"}"#)
        #expect(try await ask(nobody, "POST", "/v1/sessions/s/tasks", task()).status == 200)
        try await poll("nothing is received") {
            try await daemon.client.task(1).bytesReceived.rawValue > 300_000
        }
        let watched = try await daemon.client.watch(all: true)
        let cancellation = #"{"state": "cancelled", "producesResumeToken": true}"#
        #expect(try await ask(sync, "PATCH", "/v1/tasks/1", cancellation).status == 200)
        var resumeToken: String?
        for try await event in watched where event.kind == .cancelled {
            resumeToken = event.resumeToken
            break
        }
        let token = try #require(resumeToken)
        let created = try await ask(
            sync,
            "POST",
            "/v1/sessions/s/tasks?user=\(nobody.0)",
            task("u", #", "resumeToken": "\#(token)""#)
        )
        #expect(created.body == "{\"ids\":[2]}\n")
        try await peer.wait(forEvents: 2, of: nobody.0)
        #expect(try await daemon.client.task(2).state == .completed)
        let start = server.requests(for: "/a").last?.rangeStart
        #expect(try #require(start) > 0)
    }

    @Test func aRefusedRangeOfOneUserDoesNotAffectOtherUsers() async throws {
        let whole = Answer.content(noise(2 << 20))
        let cut = whole.cut(after: 1 << 20)
        server.answer("/a", with: cut, .status(400), whole)
        for path in ["/b", "/c"] { server.answer(path, with: cut, whole) }
        for (user, paths) in [(nobody, ["/a", "/b"]), (sync, ["/c"])] {
            #expect(try await ask(user, "PUT", "/v1/sessions/s", "{}").status == 200)
            for (index, path) in paths.enumerated() {
                let body = task(path, path: path)
                let created = try await ask(user, "POST", "/v1/sessions/s/tasks", body)
                #expect(created.status == 200)
                try await peer.wait(forEvents: index + 1, of: user.0)
            }
        }
        let hasRange = ["/a", "/b", "/c"].map { path in
            server.requests(for: path).map { $0["range"] != nil }
        }
        #expect(hasRange == [[false, true, false], [false, false], [false, true]])
    }

    @Test func theSuccessOfAUserEndsNoDelayOfAnother() async throws {
        try await daemon.kill()
        // The first retry delay is half an hour on average.
        try daemon.configure(#"{"settlingTime": 0, "retryBase": 3600}"#)
        try await daemon.start()
        server.answer("/b", with: Answer.content([1, 2, 3]).cut(after: 0), .content([1, 2, 3]))
        func download(_ path: String, _ token: String, of user: (UInt32, UInt32)) async throws {
            let body = task(token, path: path)
            let created = try await ask(user, "POST", "/v1/sessions/s/tasks", body)
            #expect(created.status == 200, "\(created)")
        }
        for user in [nobody, stranger] {
            #expect(try await ask(user, "PUT", "/v1/sessions/s", "{}").status == 200)
        }
        try await download("/b", "t", of: nobody)
        try await daemon.wait(for: [.backoff], of: 1)
        try await download("/a", "t", of: stranger)
        try await peer.wait(forEvents: 1, of: stranger.0)
        #expect(try await daemon.client.task(1).pendingReasons.map(\.kind) == [.backoff])
        #expect(server.requests(for: "/b").count == 1)
        try await download("/a", "u", of: nobody)
        try await daemon.wait(for: .completed, of: 1)
    }

    @Test func onlyWhatItsUserMayReadIsUploaded() async throws {
        let directory = try Directory.open(daemon.directory)
        try directory.write(Array("secret".utf8), to: "mine", durably: false)
        try directory.write(Array("public".utf8), to: "free", durably: false)
        try directory.changeMode(of: "mine", to: .ownerReadWrite)
        try directory.changeMode(of: "free", to: [.ownerReadWrite, .groupRead, .otherRead])
        let path = daemon.directory.string
        _ = try await peer.run(as: 0, 0, ["/bin/ln", "-s", "\(path)/mine", "\(path)/link"])
        _ = try await ask(nobody, "PUT", "/v1/sessions/s", "{}")
        func upload(_ name: String) async throws -> Int {
            let file = daemon.directory.appending(name)
            let url = server.url("/u")
            let body =
                #"{"tasks": [{"token": "\#(name)", "kind": "upload", "url": "\#(url)", "file": "\#(file)"}]}"#
            return try await ask(nobody, "POST", "/v1/sessions/s/tasks", body).status
        }
        for name in ["mine", "link", "state/journal.sqlite", "none", "state"] {
            #expect(try await upload(name) == 422, "\(name)")
        }
        #expect(try daemon.names(in: "snapshots") == [])
        #expect(try await upload("free") == 200)
        try await peer.wait(forEvents: 1, of: nobody.0)
        #expect(server.bodies(for: "/u") == [Array("public".utf8)])
    }

    @Test func aHandlerIsStartedAsItsUser() async throws {
        let target = try daemon.makeOpenDirectory().appending("identity")
        let script = "id -u; id -G; ls /proc/self/fd"
        let body =
            #"{"handler": {"command": ["/bin/sh", "-c", "(\#(script)) > \#(target)"]}}"#
        _ = try await ask(nobody, "PUT", "/v1/sessions/s", body)
        _ = try await ask(nobody, "POST", "/v1/sessions/s/tasks", task())
        try await poll("it is not started") {
            try text(of: target).split(separator: "\n").count >= 6
        }
        let lines = try text(of: target).split(separator: "\n")
        #expect(lines == ["65534", "65534", "0", "1", "2", "3"])
    }
}
