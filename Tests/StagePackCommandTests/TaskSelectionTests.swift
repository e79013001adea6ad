import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Runs `body` with a daemon that has transfers with these numbers, from 1 on.
func withTasks(
    _ count: Int,
    _ body: (Installed, TestDaemon, ControlClient) async throws -> Void
) async throws {
    var installed = try await Installed()
    let daemon = try installed.startTestDaemon()
    defer { daemon.stop() }
    let client = ControlClient(path: daemon.path)
    try await client.makeSession("s", configuration: SessionConfiguration())
    let requests = (1...count).map {
        TransferRequest(token: "\($0)", kind: .download, url: "http://a/\($0)")
    }
    _ = try await client.createTasks(requests, in: "s")
    try await body(installed, daemon, client)
}

/// The transfers that `pause`, `resume` and `cancel` change, while transfers end, cannot be changed, and are created.
@Suite(.server, .directory)
struct TaskSelectionTests {
    private func changed(_ daemon: TestDaemon) -> [String] {
        daemon.requests.map(\.line).filter { $0.hasPrefix("PATCH ") }
    }

    @Test(arguments: [["--all"], ["--session", "s"]])
    func transfersThatEndMeanwhileAreLeftOut(selection: [String]) async throws {
        try await withTasks(4) { installed, daemon, _ in
            let ids = daemon.tasks.map(\.id)
            daemon.refuse(
                "PATCH /v1/tasks/\(ids[0])",
                with: ControlRefusal(.conflict, message: "ended")
            )
            daemon.refuse(
                "PATCH /v1/tasks/\(ids[2])",
                with: ControlRefusal(.notFound, message: "gone")
            )
            let ending = try await installed.world.program.run(["pause"] + selection)
            #expect(ending.status == 0, "\(ending)")
            #expect(ending.error == "")
            #expect(changed(daemon) == ids.map { "PATCH /v1/tasks/\($0)" })
            let shown = ending.output.split(separator: "\n").compactMap { Int64($0.prefix(1)) }
            #expect(shown == [ids[1], ids[3]], "\(ending.output)")
        }
    }

    @Test func aTaskThatCannotBeChangedDoesNotStopOtherChanges() async throws {
        try await withTasks(3) { installed, daemon, _ in
            let ids = daemon.tasks.map(\.id)
            let refusal = ControlRefusal(.storage, message: "the disk is full")
            daemon.refuse("PATCH /v1/tasks/\(ids[1])", with: refusal)
            let ending = try await installed.world.program.run(["pause", "--all"])
            #expect(ending.status == 51, "\(ending)")
            #expect(ending.error == "stagepack: error: the disk is full\n")
            #expect(changed(daemon) == ids.map { "PATCH /v1/tasks/\($0)" })
            let shown = ending.output.split(separator: "\n").compactMap { Int64($0.prefix(1)) }
            #expect(shown == [ids[0], ids[2]], "\(ending.output)")
            let json = try await installed.world.program.run(["resume", "--all", "--json"])
            #expect(json.status == 51 && json.error == "", "\(json)")
            let result = try JSONNode(json: Array(json.output.utf8)).value
            #expect(result["error"]?["status"]?.integer == 51, "\(json)")
            #expect(result["tasks"] != nil, "\(json)")
        }
    }

    @Test func aTaskThatCannotBeRemovedDoesNotStopOtherRemovals() async throws {
        try await withTasks(1) { installed, daemon, client in
            let names = ["stagepack.tasks.a", "stagepack.tasks.b"]
            for name in names {
                try await client.makeSession(name, configuration: SessionConfiguration())
                let url = "http://a/\(name)"
                let request = TransferRequest(token: name, kind: .download, url: url)
                let ids = try await client.createTasks([request], in: name)
                var change = TransferChange()
                change.state = .cancelled
                _ = try await client.change(ids[0], by: change)
            }
            let refusal = ControlRefusal(.storage, message: "the disk is full")
            daemon.refuse("POST /v1/sessions/\(names[1])/acknowledge", with: refusal)
            let ending = try await installed.run("tasks", "clear", "--json")
            #expect(ending.status == 51, "\(ending)")
            let result = try JSONNode(json: Array(ending.output.utf8)).value
            #expect(try OutputSchemas().faults(of: result, as: "tasks-clear") == [])
            #expect(result["error"]?["status"]?.integer == 51, "\(ending)")
            #expect(ending.output.contains("http://a/\(names[0])"), "\(ending)")
            #expect(!ending.output.contains("http://a/\(names[1])"), "\(ending)")
        }
    }

    @Test(arguments: [ControlRefusal.Code.notFound, .conflict])
    func aTransferThatHasEndedIsNotTriedAgain(code: ControlRefusal.Code) async throws {
        try await withTasks(1) { installed, daemon, _ in
            let id = daemon.tasks[0].id
            daemon.refuse("PATCH /v1/tasks/\(id)", with: ControlRefusal(code, message: "ended"))
            let ending = try await installed.run("cancel", "\(id)", "--json")
            #expect(ending.status == 51, "\(ending)")
            let result = try JSONNode(json: Array(ending.output.utf8)).value
            #expect(result["error"]?["retry"]?.string == "never", "\(ending)")
        }
    }

    @Test func everyTransferThatCannotBeChangedIsNamed() async throws {
        try await withTasks(1) { installed, daemon, _ in
            for number in [98, 99] {
                let refusal = ControlRefusal(.notFound, message: "no task \(number)")
                daemon.refuse("PATCH /v1/tasks/\(number)", with: refusal)
            }
            let run = installed.world.program
            let none = try await run.run(["cancel", "98", "99", "98"])
            #expect(none.status == 51 && none.output.isEmpty, "\(none)")
            let lines = none.error.split(separator: "\n")
            #expect(
                lines.map { $0.hasPrefix("hint: ") ? "hint" : String($0) } == [
                    "stagepack: error: no task 98", "stagepack: error: no task 99", "hint",
                ]
            )
            let some = try await run.run(["pause", "98", "\(daemon.tasks[0].id)", "99", "--json"])
            #expect(some.status == 51 && some.error.isEmpty, "\(some)")
            let result = try JSONNode(json: Array(some.output.utf8)).value
            #expect(result["tasks"] != nil && result["failures"] != nil, "\(some)")
            #expect(some.output.contains("no task 98") && some.output.contains("no task 99"))
        }
    }

    @Test(arguments: [("tasks", "GET /v1/tasks?all=1"), ("watch", "GET /v1/events?all=1")])
    func aUserLearnsHowToListItsOwnTransfers(command: String, request: String) async throws {
        try await withTasks(1) { installed, daemon, _ in
            daemon.refuse(request, with: ControlRefusal(.forbidden, message: "for root only"))
            let ending = try await installed.world.program.run([command, "--all"])
            let error = """
                stagepack: error: for root only
                hint: run it as root, or run 'stagepack \(command)' for the transfers of this user

                """
            #expect(ending == Program.Ending(status: 51, output: "", error: error))
        }
    }

    @Test func transfersThatAreCreatedMeanwhileAreChangedToo() async throws {
        try await withTasks(1) { installed, daemon, client in
            daemon.hold("PATCH ")
            let ending = try await installed.world.program.run(["pause", "--all"]) { _ in
                try await poll { !self.changed(daemon).isEmpty }
                let request = TransferRequest(token: "2", kind: .download, url: "http://a/2")
                _ = try await client.createTasks([request], in: "s")
                daemon.release()
            }
            #expect(ending.status == 0, "\(ending)")
            #expect(changed(daemon) == daemon.tasks.map { "PATCH /v1/tasks/\($0.id)" })
            #expect(daemon.tasks.count == 2)
        }
    }
}
