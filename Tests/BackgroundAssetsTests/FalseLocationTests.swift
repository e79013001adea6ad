import Foundation
import StageControl
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

@testable import BackgroundAssets

/// A daemon that reports paths of files that it must not give to a client.
@Suite(.directory) struct FalseLocationTests {
    @Test(arguments: StagedBait.allCases)
    func aFileThatIsNotTheDaemonsToGiveIsNotHandedOver(bait: StagedBait) async throws {
        let world = try ScriptedWorld()
        let directory = try TemporaryDirectory.required()
        let location = try bait.lay(in: directory)
        world.daemon.stage(in: directory.path.appending("staged").string)
        // The delegate moves the file that it gets, like an application.
        let target = directory.path.appending("taken").string
        let recorder = Recorder {
            try? FileManager.default.moveItem(atPath: location.string, toPath: target)
        }
        world.manager.delegate = recorder
        try world.manager.schedule(world.download("a"))
        try await world.attach()
        world.emit(.completed) { $0.location = location.string }
        try await recorder.lines(["failed a: 103"])
        #expect(try bait.isWhole(in: directory))
        world.daemon.stop()
    }

    @Test func aFileOfTheDaemonsIsHandedOver() async throws {
        let world = try ScriptedWorld()
        let directory = try TemporaryDirectory.required()
        let staged = try directory.makeDirectory("staged")
        try staged.write([1], to: "1", durably: false)
        world.daemon.stage(in: staged.path.string)
        let recorder = Recorder()
        world.manager.delegate = recorder
        try world.manager.schedule(world.download("a"))
        try await world.attach()
        let location = staged.path.appending("1").string
        world.emit(.completed) { $0.location = location }
        try await recorder.lines(["finished a: \(location)"])
        world.daemon.stop()
    }
}
