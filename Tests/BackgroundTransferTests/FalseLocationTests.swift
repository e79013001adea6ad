import BackgroundTransfer
import Foundation
import StageControl
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// A daemon that reports paths of files that it must not give to a client.
@Suite(.directory) struct FalseLocationTests {
    @Test(arguments: StagedBait.allCases)
    func aFileThatIsNotTheDaemonsToGiveIsNotHandedOver(bait: StagedBait) async throws {
        let world = try ScriptedWorld()
        let directory = try TemporaryDirectory.required()
        let location = try bait.lay(in: directory)
        world.daemon.stage(in: directory.path.appending("staged").string)
        let session = world.session()
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await world.attach()
        // The delegate moves the file of the download, as an application does.
        let target = directory.path.appending("taken").string
        world.recorder.state.withLock {
            $0.block = {
                try? FileManager.default.moveItem(atPath: location.string, toPath: target)
            }
        }
        world.emit(.completed, task) { $0.location = location.string }
        #expect(try await world.lines(2) == ["created 1", "completed 1: -3001"])
        #expect((task.error as? URLError)?.code == .cannotOpenFile)
        #expect(try bait.isWhole(in: directory))
        try await world.end(session)
    }

    @Test func aFileOfTheDaemonsIsHandedOver() async throws {
        let world = try ScriptedWorld()
        let directory = try TemporaryDirectory.required()
        let staged = try directory.makeDirectory("staged")
        try staged.write([1], to: "1", durably: false)
        world.daemon.stage(in: staged.path.string)
        let session = world.session()
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await world.attach()
        let location = staged.path.appending("1").string
        world.emit(.completed, task) { $0.location = location }
        #expect(
            try await world.lines(3).dropFirst() == [
                "finished 1: \(location)", "completed 1: well",
            ]
        )
        try await world.end(session)
    }
}
