import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Removals of trees into which others still write.
@Suite(.directory)
struct TreeRemovalTests {
    /// The decoder of a killed process writes until the kernel ends it, too.
    @Test(arguments: [false, true])
    func aTreeIsRemovedAlthoughItIsWrittenToForAMoment(isTop: Bool) async throws {
        let root = try TemporaryDirectory.required()
        let tree = try root.makeDirectory("tree")
        let written = isTop ? tree : try tree.makeDirectory("below")
        try written.write([1], to: "first", durably: false)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                try await withBlockingThread { () throws(FileError) in
                    let end = ContinuousClock.now + .milliseconds(300)
                    var number = 0
                    while ContinuousClock.now < end {
                        number += 1
                        do throws(FileError) {
                            let name = FilePath("file-\(number)")
                            _ = try written.file(updating: name, exactly: .file)
                        } catch {
                            // The directory is gone.
                            return
                        }
                    }
                }
            }
            try await poll("nothing is written") { try written.status("file-1") != nil }
            #expect(try root.removeTree("tree"))
            try await group.waitForAll()
        }
        #expect(try root.status("tree") == nil)
    }
}
