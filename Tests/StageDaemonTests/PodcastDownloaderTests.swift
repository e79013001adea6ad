import FoundationEssentials
import Glibc
import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The example of an application that was ported by changing one import: from its feed to its episodes.
@Suite(.directory, .daemon, .server, .severalUsers)
final class PodcastDownloaderTests {
    private static let session = "com.example.podcast-downloader"

    private let daemon: DaemonProcess
    private let server = TestServer.current
    /// The user of the application; as root, it would use another daemon.
    private let user: UInt32 = 65534
    /// The directory of the application, which only root may write, from '/' on.
    private let programs: InstalledPrograms
    private let home: FilePath

    init() async throws {
        daemon = try .required()
        try daemon.letOthersPass()
        try daemon.configure(
            #"{"settlingTime": 0, "retryBase": 0.05, "relaunchDelay": 0.2, "handlerUsers": ["nobody"]}"#
        )
        try await daemon.start()
        home = try Directory.open(daemon.directory).makeDirectory("home").path
        programs = try InstalledPrograms()
        try programs.install("podcast-downloader")
        let status = unsafe chown(home.string, user, 65534)
        try #require(status == 0)
    }

    /// The episodes that the application has moved to their place.
    private var episodes: FilePath { home.appending(".local/share/podcast-downloader") }

    /// Serves a feed of episodes.
    private func publish(_ names: String...) {
        let items = names.map {
            #"{"id": "\#($0)", "attachments": [{"url": "\#(server.url("/\($0)"))"}]}"#
        }
        let feed = #"{"title": "Quay", "items": [\#(items.joined(separator: ", "))]}"#
        server.answer("/feed.json", with: .content(Array(feed.utf8)))
    }

    /// Starts the application as the user, with its output appended to a file.
    private func start(_ arguments: [String], log: FilePath) throws -> StartedProcess {
        var command = ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        command += ["/usr/bin/env", "-i", "STAGEPACK_SOCKET=\(daemon.socket)"]
        // Another home directory than that of the account.
        command += ["HOME=\(home)"]
        command += [programs.path.appending("podcast-downloader").string] + arguments
        return try StartedProcess(command, log: log)
    }

    /// Runs the application until it exits with status 0, and returns its output.
    private func run(_ arguments: String...) async throws -> String {
        let log = daemon.directory.appending("\(arguments[0]).log")
        let process = try start(arguments, log: log)
        try await poll("the application does not end") { process.status != nil }
        #expect(process.status == 0)
        return String(decoding: try File.open(reading: log).readAll(limit: 1 << 20), as: UTF8.self)
    }

    @Test func aKilledApplicationIsLaunchedAndHasItsEpisodes() async throws {
        publish("one.mp3", "two.mp3", "gone.mp3")
        let gate = Gate()
        let episode = Answer.content(noise(400_000)).held(after: 100_000, until: gate)
        server.answer("/one.mp3", with: episode)
        server.answer("/two.mp3", with: .content(noise(20_000)))
        let log = daemon.directory.appending("watch.log")
        let application = try start(["watch", server.url("/feed.json")], log: log)
        // A task that the daemon does not have yet would end with its process.
        try await poll("not everything is asked for") {
            ["/one.mp3", "/two.mp3", "/gone.mp3"].allSatisfy { !server.requests(for: $0).isEmpty }
        }
        application.send(SIGKILL)
        try await poll("the application stays") { application.status != nil }
        #expect(application.status == 1000 + SIGKILL)
        #expect(!FileStatus.exists(episodes.appending("one.mp3")))
        try await daemon.kill()
        gate.open()
        try await daemon.start()
        try await poll("the launched application does not take the episode") {
            FileStatus.exists(episodes.appending("one.mp3"))
        }
        try await poll("the launch is not acknowledged") {
            let session = try await daemon.client.sessions(all: true).first
            return session?.identifier == Self.session
                && session?.acknowledgedEvent == session?.lastEvent
        }
        let first = try File.open(readingRegular: episodes.appending("one.mp3"))
        #expect(try first.readAll(limit: 1 << 20) == noise(400_000))
        // The handler has moved the files without a user's action, and has not stored the error page as an episode.
        #expect(try await run("list") == "one.mp3\ntwo.mp3\n")
        publish("one.mp3", "two.mp3")
        let again = try await run("get", server.url("/feed.json"))
        #expect(again == "Quay: 0 of 2 episodes to download\n")
        // A launched process that loses its daemon would wait for it.
        try await poll("the launched process stays") {
            try daemon.said().contains("A handler has ended")
        }
    }
}
