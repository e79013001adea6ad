import FoundationEssentials
import Glibc
import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Clients that are written for Apple's platforms: they name no launch handler, and the daemon launches the executable.
@Suite(.directory, .daemon, .server, .severalUsers)
final class UnchangedClientTests {
    private static let session = "com.example.background-downloads"

    private let daemon: DaemonProcess
    private let server = TestServer.current
    /// The user of the clients; as root, they would use another daemon.
    private let user: UInt32 = 65534
    /// The directory of the application, which only root may write, from '/' on.
    private let installed: InstalledPrograms
    private let home: FilePath

    init() async throws {
        daemon = try .required()
        try daemon.letOthersPass()
        try daemon.configure(
            #"{"settlingTime": 0, "retryBase": 0.05, "relaunchDelay": 0.2, "handlerUsers": ["nobody", "daemon"]}"#
        )
        try await daemon.start()
        let directory = try Directory.open(daemon.directory)
        home = try directory.makeDirectory("home").path
        installed = try InstalledPrograms()
        try installed.install("background-downloads", as: "application")
        try give(home)
        server.answer("/file", with: .content(noise(20_000)))
    }

    private var programs: FilePath { installed.path }

    /// Makes the clients' user the owner of a directory.
    private func give(_ path: FilePath) throws {
        let status = unsafe chown(path.string, 65534, 65534)
        try #require(status == 0)
    }

    /// The log of the clients.
    private var log: FilePath { daemon.directory.appending("client.log") }

    /// Returns the warnings in the log of the clients.
    private func warnings() throws -> [Substring] {
        let bytes = try File.open(readingRegular: log).readAll(limit: 1 << 20)
        return String(decoding: bytes, as: UTF8.self).split(separator: "\n")
            .filter { $0.contains("The daemon will not launch this program") }
    }

    /// Runs the application as the user, or as another one with a group of the same number, and waits for its end.
    private func run(
        _ arguments: String...,
        by wrapper: [String] = [],
        as user: UInt32 = 65534,
        in folder: FilePath? = nil
    ) async throws -> Int32 {
        var command = wrapper
        command += ["/usr/bin/setpriv", "--reuid=\(user)", "--regid=\(user)", "--clear-groups"]
        command += ["/usr/bin/env", "-i", "STAGEPACK_SOCKET=\(daemon.socket)"]
        command += ["HOME=\(home)", "XDG_DATA_HOME=\(home)/data", "XDG_CONFIG_HOME=\(home)/config"]
        command += [(folder ?? programs).appending("application").string] + arguments
        let process = try StartedProcess(command, log: log)
        try await poll("the client does not end") { process.status != nil }
        return try #require(process.status)
    }

    private func session() async throws -> SessionStatus {
        let sessions = try await daemon.client.sessions(all: true)
        return try #require(sessions.first { $0.identifier == Self.session })
    }

    @Test func theExecutableIsLaunchedAndFindsItsFolders() async throws {
        #expect(try await run("get", server.url("/file")) == 0)
        let file = home.appending("data/background-downloads/file")
        try await poll("the launched process does not take the file") {
            FileStatus.exists(file)
        }
        try await poll("the launch is not acknowledged") {
            try await session().acknowledgedEvent == 1
        }
        #expect(try await session().failedLaunches == 0)
        #expect(try File.open(readingRegular: file).readAll(limit: 1 << 20) == noise(20_000))
    }

    @Test func theHandlerOfTheRegistrationIsLaunched() async throws {
        let folder = home.appending("config/stagepack/apps.d")
        try FileManager.default.createDirectory(
            atPath: folder.string,
            withIntermediateDirectories: true
        )
        // The registration names the executable of the application by its own handler.
        let registration = """
            {"registrationVersion": 1, "application": "com.example.downloads", "version": "1",
             "applicationGroup": "com.example.downloads", "trust": "transport",
             "manifestURLs": ["https://cdn.example.com/manifest.json"],
             "backgroundEventsHandler": {"path": "\(programs)/application", "arguments": ["list"]}}
            """
        try Directory.open(folder).write(
            Array(registration.utf8),
            to: "com.example.downloads.json",
            durably: false
        )
        for path in ["config", "config/stagepack", "config/stagepack/apps.d"] {
            try give(home.appending(path))
        }
        #expect(try await run("list") == 0)
        let command = try await session().configuration.handler?.command
        #expect(command == ["\(programs)/application", "list"])
    }

    @Test func anExecutableThatAnotherUserCouldReplaceIsNotLaunched() async throws {
        let folder = try Directory.open(daemon.directory).makeDirectory("open").path
        try ProgramFile.copy(
            from: programs.appending("application"),
            to: folder.appending("application")
        )
        let status = unsafe chmod(folder.string, 0o1777)
        try #require(status == 0)
        #expect(try await run("list", in: folder) == 0)
        #expect(try await session().configuration.handler == nil)
        let warnings = try warnings()
        #expect(warnings.count == 1)
        #expect(warnings.first?.contains("'\(folder)': ") == true)
        #expect(warnings.first?.contains("found mode 01777") == true)
    }

    @Test func aConfinedClientGetsItsSessionAndNoHandler() async throws {
        let confined = ["/usr/bin/setpriv", "--no-new-privs"]
        #expect(try await run("get", server.url("/file"), by: confined) == 0)
        try await poll("the download does not end") { try await session().lastEvent == 1 }
        #expect(try await session().configuration.handler == nil)
    }

    @Test func aNewExecutableReplacesTheOldOneAndAnExplicitHandlerStays() async throws {
        #expect(try await run("list") == 0)
        let first = try #require(try await session().configuration.handler)
        let path = programs.appending("application")
        #expect(first.command == [path.string])
        // An update of the program: another file under its name.
        try FileManager.default.moveItem(atPath: path.string, toPath: "\(path).old")
        try ProgramFile.copy(from: FilePath("\(path).old"), to: path)
        #expect(try await run("list") == 0)
        let second = try #require(try await session().configuration.handler)
        #expect(second.command == first.command && second.version != first.version)
        let explicit = LaunchHandler(command: ["/bin/true", "explicit"])
        var configuration = try await session().configuration
        configuration.handler = explicit
        let body = String(decoding: try ControlFormat.encode(configuration), as: UTF8.self)
        let peer = try Peer(daemon)
        let url = "/v1/sessions/\(Self.session)"
        #expect(try await peer.ask(as: user, user, "PUT", url, body).status == 200)
        #expect(try await run("list") == 0)
        #expect(try await session().configuration.handler?.command == explicit.command)
    }
}
