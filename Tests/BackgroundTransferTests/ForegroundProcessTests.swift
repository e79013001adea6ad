import Foundation
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Sessions in a process that lacks a network, or threads.
@Suite(.directory, .server) struct ForegroundProcessTests {
    private let folder: FilePath

    init() throws { folder = try TemporaryDirectory.required().path }

    /// Runs a program, and returns the lines that it prints.
    private func run(_ command: [String]) async throws -> [String] {
        let log = folder.appending("client.log")
        let process = try StartedProcess(command, log: log)
        try await poll("the program does not end") { process.status != nil }
        #expect(process.status == 0)
        let output = try File.open(reading: log).readAll(limit: 1 << 20)
        return String(decoding: output, as: UTF8.self).split(separator: "\n").map { String($0) }
    }

    /// The delegate is told once that the task waits, and asked once for the body of an upload.
    @Test(.ownNetwork, arguments: [("data", ["waiting"]), ("stream", ["stream", "waiting"])])
    func aTaskWaitsForTheNetwork(_ kind: String, calls: [String]) async throws {
        let client = try BuiltProgram.path(ofTestProgram: "data-task-client")
        // The loopback device of a new network is down, so that there is no route; two attempts later it is up.
        let script = """
            "$0" http://127.0.0.1:1/ "$1" | while read -r line; do
                echo "$line"
                test "$line" = waiting && sleep 2 && ip link set lo up
            done
            exit 0
            """
        let lines = try await run([
            "/usr/bin/unshare", "-n", "/bin/sh", "-c", script, client.string, kind,
        ])
        #expect(lines == calls + ["completed -1004, status 0"])
    }

    @Test(.severalUsers)
    func aRequestThatGetsNoThreadFailsAndTheNextSucceeds() async throws {
        let programs = try InstalledPrograms()
        try programs.install("data-task-client")
        TestServer.current.answer("/a", with: .content([1]))
        let lines = try await run([
            "/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
            programs.path.appending("data-task-client").string,
            TestServer.current.url("/a"), "without-threads",
        ])
        #expect(lines == ["completed -1008, status 0", "completed 0, status 200"])
    }
}
