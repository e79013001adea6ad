import Foundation
import FoundationNetworking
import StageControl
import StageModel
import StageTesting
import Synchronization
import Testing

@testable import BackgroundAssets

/// Delegates that replace each other while the real daemon has events for them, or has lost its records.
@Suite(.directory, .daemon, .server) struct DelegateChangeTests {
    private static let credential = URLCredential(user: "u", password: "p", persistence: .none)

    /// Starts a daemon that has lost its records.
    private func startAnew(_ world: World) async throws {
        try await world.daemon.kill()
        try FileManager.default.removeItem(atPath: world.daemon.state.string)
        try await world.daemon.start()
    }

    @Test func aFileThatADelegateTakesWhileItIsReplacedIsTheirsAlone() async throws {
        let world = try await World()
        let (manager, client, second) = (world.manager, world.daemon.client, Recorder())
        let first = Recorder {
            manager.delegate = second
            // Gives the connection time to end, in case it does not wait for this call.
            _ = try? client.answer(to: .session(World.session))
        }
        world.manager.delegate = first
        try world.manager.schedule(world.download("a"))
        try await world.acknowledged(1)
        try world.manager.schedule(world.download("b"))
        try await second.ends(["finished b: /staged/2"], in: world)
        try await first.ends(["finished a: /staged/1"], in: world)
    }

    @Test func anAnswerOfADelegateThatWasReplacedCounts() async throws {
        let world = try await World()
        let (first, second) = (Recorder(), Recorder())
        try await world.challenge(first)
        world.manager.delegate = second
        try await second.ends(["challenged secret: 127.0.0.1 r"], in: world)
        let firstAnswer = try #require(first.answer)
        firstAnswer(.useCredential, Self.credential)
        let secondAnswer = try #require(second.answer)
        secondAnswer(.cancelAuthenticationChallenge, nil)
        try await world.acknowledged(2)
        try await second.ends(
            ["challenged secret: 127.0.0.1 r", "finished secret: /staged/1"],
            in: world
        )
        #expect(world.server.requests(for: "/secret").last?["authorization"] == "Basic dTpw")
    }

    @Test func anAnswerThatNoDaemonHeardIsGivenThoughTheDelegateIsReplaced() async throws {
        let world = try await World()
        let (first, second) = (Recorder(), Recorder())
        try await world.challenge(first)
        try await world.daemon.kill()
        let firstAnswer = try #require(first.answer)
        firstAnswer(.useCredential, Self.credential)
        world.manager.delegate = second
        try await world.daemon.start()
        try await world.acknowledged(2)
        try await second.ends(["finished secret: /staged/1"], in: world)
        #expect(world.server.requests(for: "/secret").last?["authorization"] == "Basic dTpw")
    }

    @Test(arguments: [true, false])
    func aDownloadThatTheDaemonHasLostFails(hasDelegate: Bool) async throws {
        let world = try await World()
        let recorder = Recorder()
        if hasDelegate {
            world.manager.delegate = recorder
            try await world.attach()
        }
        try world.manager.schedule(world.download("late"))
        if hasDelegate { try await poll { recorder.lines == ["begin late"] } }
        try await startAnew(world)
        world.manager.delegate = recorder
        try await recorder.ends(["failed late: 103"], in: world)
        #expect(try world.manager.fetchCurrentDownloads().isEmpty)
        try world.manager.schedule(world.download("a"))
        try await poll { recorder.lines.last?.hasPrefix("finished a") == true }
        #expect(recorder.lines.count { $0.hasPrefix("failed") } == 1)
        world.open()
    }

    @Test func aDownloadWhoseEndAnotherProcessHeardDoesNotFail() async throws {
        let world = try await World()
        let (recorder, others) = (Recorder(), Recorder())
        try world.manager.schedule(world.download("a"))
        let other = world.other()
        other.delegate = others
        try await others.ends(["finished a: /staged/1"], in: world)
        try await world.acknowledged(1)
        other.delegate = nil
        world.manager.delegate = recorder
        try world.manager.schedule(world.download("b"))
        try await recorder.ends(["finished b: /staged/2"], in: world)
    }
}
