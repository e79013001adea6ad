import FoundationEssentials
import StageContainer
import StageSystem
import SystemPackage

/// A directory that goes with the command.
struct TemporaryFolder {
    let path: FilePath
    private let parent: Directory
    private let name: FilePath.Component

    /// Makes a directory in `parent`, or where temporary files belong.
    static func make(in parent: FilePath? = nil) throws(CommandFailure) -> TemporaryFolder {
        let mark = String(UInt64.random(in: 0...UInt64.max), radix: 36)
        let usual = ProcessEnvironment.current["TMPDIR"] ?? "/tmp"
        do throws(FileError) {
            let directory = try Directory.make(parent ?? FilePath(usual))
            guard let name = FilePath.Component("stagepack.\(mark)") else {
                preconditionFailure("digits are a file name")
            }
            let path = try directory.makeDirectory(
                FilePath(name),
                permissions: FilePermissions(rawValue: 0o700)
            ).path
            return TemporaryFolder(path: path, parent: directory, name: name)
        } catch {
            throw CommandFailure(.file(error))
        }
    }

    /// Removes the directory with everything in it.
    func remove() {
        do throws(FileError) {
            try parent.removeTree(name)
        } catch {
            Console.note("stagepack: warning: \(error)")
        }
    }
}
