import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

@Suite(.directory) struct ConfinementTests {
    /// Observations of threads, collected for the test.
    private final class Notes: Sendable {
        private let notes = Mutex<[String]>([])
        var all: [String] { notes.withLock { $0 } }
        func add(_ note: String) { notes.withLock { $0.append(note) } }

        /// Records whether the call was allowed.
        func tell(_ name: String, _ call: () throws -> Void) {
            do {
                try call()
                add("\(name): allowed")
            } catch let error as FileError {
                add("\(name): \(error.errno == .permissionDenied ? "denied" : "\(error)")")
            } catch {
                add("\(name): \(error)")
            }
        }
    }

    @Test(.landlock) func aConfinedThreadReachesOnlyItsDirectory() throws {
        let root = try TemporaryDirectory.required()
        let inside = try root.makeDirectory("inside")
        let canary = try root.file(creating: "canary")
        try canary.write([1].span, at: 0)
        let notes = Notes()
        let work: @Sendable () -> Void = {
            notes.tell("create inside") { _ = try inside.file(creating: "file") }
            notes.tell("directory inside") { _ = try inside.makeDirectory("directory") }
            notes.tell("link inside") { try inside.createLink("link", to: "file") }
            notes.tell("create outside") { _ = try root.file(creating: "file") }
            notes.tell("write outside") { _ = try root.file(updating: "canary") }
            notes.tell("read outside") { _ = try root.file(reading: "canary") }
            notes.tell("read elsewhere") { _ = try File.open(reading: "/etc/hostname") }
            notes.tell("remove outside") { try root.remove("canary") }
            notes.tell("link outside") { try root.createLink("link", to: "canary") }
        }
        let box = Box(confinement: .none)
        try SystemThread(name: "confined") {
            notes.tell("confine") { box.set(try Confinement.confineThread(beneath: inside)) }
            work()
        }.join()
        #expect(box.confinement.restrictsFiles)
        #expect(
            notes.all == [
                "confine: allowed", "create inside: allowed", "directory inside: allowed",
                "link inside: allowed", "create outside: denied", "write outside: denied",
                "read outside: denied", "read elsewhere: denied", "remove outside: denied",
                "link outside: denied",
            ]
        )
        // Other threads are not confined.
        #expect(try root.file(reading: "canary")?.readAll(limit: 1) == [1])
    }

    private final class Box: Sendable {
        private let value: Mutex<Confinement>
        init(confinement: Confinement) { value = Mutex(confinement) }
        var confinement: Confinement { value.withLock { $0 } }
        func set(_ confinement: Confinement) { value.withLock { $0 = confinement } }
    }
}
