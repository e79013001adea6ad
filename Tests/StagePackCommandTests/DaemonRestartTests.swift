import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// Commands that wait for the daemon during its restart, and the form of their output.
@Suite(.server, .directory, .timeLimit(.minutes(10)))
struct DaemonRestartTests {
    private static let content = Array("content".utf8)

    /// Starts a command that waits for a download, and ends its daemon when the download has begun.
    private static func beginDownload(
        by installed: inout Installed,
        to output: FilePath
    ) async throws -> Task<Program.Ending, any Error> {
        let server = installed.world.server
        server.answer("/slow", with: .content(content).stalled(after: 3))
        let arguments = ["tasks", "add", server.url("/slow"), "-o", output.string]
        return try await withDaemon(&installed) { installed, _ in
            let program = installed.world.program
            let command = Task { try await program.run(arguments) }
            try await poll("no request comes") { !server.requests(for: "/slow").isEmpty }
            return command
        }
    }

    @Test func aDownloadIsCollectedAfterARestartOfTheDaemon() async throws {
        var installed = try await Installed()
        let output = installed.world.directory.path.appending("file")
        let command = try await Self.beginDownload(by: &installed, to: output)
        installed.world.server.answer("/slow", with: .content(Self.content))
        let ending = try await withDaemon(&installed) { _, client in
            let ending = try await command.value
            #expect(try await client.tasks().isEmpty)
            return ending
        }
        #expect(ending.status == 0, "\(ending)")
        #expect(try bytes(of: output) == Self.content)
    }

    /// If the download ended before the command connected, the command uses its file or its failure.
    @Test func aDownloadThatEndsBeforeTheCommandConnectsIsItsOwn() async throws {
        var installed = try await Installed()
        let output = installed.world.directory.path.appending("file")
        let command = try await Self.beginDownload(by: &installed, to: output)
        installed.world.server.answer("/slow", with: .status(404))
        let ending = try await withDaemon(&installed) { _, _ in try await command.value }
        #expect(ending.status == 21, "\(ending)")
        #expect(!FileStatus.exists(output))
    }

    /// Adds downloads until the event of one was received.
    private static func addDownloads(
        _ installed: Installed,
        to folder: String,
        until isSeen: () throws -> Bool
    ) async throws {
        let numbers = Mutex(0)
        try await poll("no event is printed") {
            if try isSeen() { return true }
            let number = numbers.withLock { number in
                number += 1
                return number
            }
            let url = installed.world.server.url("/\(folder)/\(number)")
            let added = try await installed.run("tasks", "add", url)
            #expect(added.status == 0, "\(added)")
            return false
        }
    }

    /// Returns the numbers of the tasks in lines of JSON.
    private static func tasks(in lines: String) -> [Int64] {
        lines.split(separator: "\n").compactMap { line in
            guard let name = line.ranges(of: #""task":"#).first else { return nil }
            return Int64(line[name.upperBound...].prefix { $0.isNumber })
        }
    }

    @Test func watchingContinuesAfterARestartOfTheDaemon() async throws {
        var installed = try await Installed()
        let lines = installed.world.directory.path.appending("events")
        let (ends, end) = AsyncStream.makeStream(of: Void.self)
        let command = try await withDaemon(&installed) { installed, client in
            var watch = installed.world.program
            let program = watch.wrapper.isEmpty ? [try Program.path.string] : watch.wrapper
            watch.wrapper = ["/bin/sh", "-c", #"exec "$@" > "$0""#, lines.string] + program
            let command = Task { [watch] in
                try await watch.run(["watch", "--json"]) { running in
                    for await _ in ends { break }
                    running.send(SIGINT)
                }
            }
            try await Self.addDownloads(installed, to: "first") {
                // The shell may not have created the file yet.
                (try? text(of: lines))?.isEmpty == false
            }
            return command
        }
        let ending = try await withDaemon(&installed) { installed, client in
            let last = try await client.tasks().map(\.id).max() ?? 0
            try await Self.addDownloads(installed, to: "second") {
                Self.tasks(in: try text(of: lines)).contains { $0 > last }
            }
            end.yield(())
            return try await command.value
        }
        #expect(ending.status == 0, "\(ending)")
        let warning = "stagepack: warning: the connection to the daemon was lost: "
        #expect(ending.error.hasPrefix(warning), "\(ending)")
        for line in try text(of: lines).split(separator: "\n") {
            #expect(line.hasPrefix("{") && line.hasSuffix("}"), "\(line)")
        }
    }

    @Test(arguments: [([], 50), (["--nonsense"], 64)] as [([String], Int32)])
    func aFailureOfACommandThatPrintsLinesIsALine(more: [String], status: Int32) async throws {
        var installed = try await Installed()
        installed.allowDaemon()
        let ending = try await installed.world.program.run(["watch", "--json"] + more)
        #expect(ending.status == status && ending.error.isEmpty, "\(ending)")
        #expect(ending.output.hasPrefix(#"{"error":{"#), "\(ending)")
        #expect(ending.output.hasSuffix("}\n"), "\(ending)")
        #expect(ending.output.split(separator: "\n").count == 1, "\(ending)")
    }

    @Test(arguments: [("022", 0o644), ("077", 0o600), ("002", 0o664)] as [(String, UInt32)])
    func aCollectedFileHasTheModeOfANewFile(umask: String, mode: UInt32) async throws {
        var installed = try await Installed()
        let server = installed.world.server
        server.answer("/file", with: .content(Self.content))
        let output = installed.world.directory.path.appending("file")
        try await withDaemon(&installed) { installed, client in
            var program = installed.world.program
            let words = program.wrapper.isEmpty ? [try Program.path.string] : program.wrapper
            program.wrapper = ["/bin/sh", "-c", #"umask "$0"; exec "$@""#, umask] + words
            let arguments = ["tasks", "add", server.url("/file"), "-o", output.string]
            let ending = try await program.run(arguments)
            #expect(ending.status == 0, "\(ending)")
        }
        #expect(FileStatus(following: output)?.mode == mode)
    }
}
