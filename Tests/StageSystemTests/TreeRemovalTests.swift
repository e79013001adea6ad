import Glibc
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Removals of trees while other processes still write into them.
@Suite(.directory)
struct TreeRemovalTests {
    /// The decoder of a killed process writes until the kernel ends it, too.
    ///
    /// The critical time is short, between the last listing of a directory and its removal.
    @Test(arguments: [false, true])
    func aTreeIsRemovedAlthoughItIsWrittenToForAMoment(isTop: Bool) async throws {
        let root = try TemporaryDirectory.required()
        for _ in 0..<100 {
            let tree = try root.makeDirectory("tree")
            let written = isTop ? tree : try tree.makeDirectory("below")
            async let writing: Void = withBlockingThread { write(into: written) }
            try await poll("no entry is written") { try !written.entries().isEmpty }
            #expect(try root.removeTree("tree"))
            await writing
            #expect(try root.status("tree") == nil)
        }
    }

    /// Creates files from time to time, until the directory is removed.
    private func write(into directory: Directory) {
        for number in 0..<100 {
            do throws(FileError) {
                _ = try directory.file(updating: FilePath("\(number)"), exactly: .file)
            } catch {
                return
            }
            _ = usleep(50)
        }
    }
}
