import Foundation
import StageControl
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

@testable import BackgroundAssets

/// A daemon that tells of files that are not its to give.
@Suite(.directory) struct FalseLocationTests {
    @Test(arguments: StagedBait.allCases)
    func aFileThatIsNotTheDaemonsToGiveIsNotHandedOver(bait: StagedBait) async throws {
        let world = try ScriptedWorld()
        let directory = try TemporaryDirectory.required()
        let location = try bait.lay(in: directory)
        world.daemon.stage(in: directory.path.appending("staged").string)
        // A delegate moves what it is handed, as an application does.
        let target = directory.path.appending("taken").string
        let recorder = Recorder {
            try? FileManager.default.moveItem(atPath: location.string, toPath: target)
        }
        world.manager.delegate = recorder
        try world.manager.schedule(world.download("a"))
        try await world.attach()
        world.emit(.completed) { $0.location = location.string }
        try await recorder.lines(["failed a: 102"])
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
