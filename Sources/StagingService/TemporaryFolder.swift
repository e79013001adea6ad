import FoundationEssentials
package import Logging
import StageContainer
import StageSystem
package import SystemPackage

/// A temporary directory, which its owner deletes with ``remove()``.
package struct TemporaryFolder {
    /// The absolute path of the directory.
    package let path: FilePath
    private let parent: Directory
    private let logger: Logger
    private let name: FilePath.Component
    /// `true` if the parent contains only temporary folders, so that remains of earlier ones can be deleted with this one.
    private let parentIsDedicated: Bool

    /// Creates a directory in `parent`, or in the directory for temporary files.
    package static func make(
        in parent: FilePath? = nil,
        logger: Logger
    ) throws(StagingFailure) -> TemporaryFolder {
        let mark = String(UInt64.random(in: 0...UInt64.max), radix: 36)
        let usual = ProcessEnvironment.current["TMPDIR"] ?? "/tmp"
        do throws(FileError) {
            let directory = try Directory.make(parent ?? FilePath(usual))
            let name = FilePath.Component(known: "stagepack.\(mark)")
            let path = try directory.makeDirectory(
                FilePath(name),
                permissions: FilePermissions(rawValue: 0o700)
            ).path
            return TemporaryFolder(
                path: path,
                parent: directory,
                logger: logger,
                name: name,
                parentIsDedicated: parent != nil
            )
        } catch {
            throw StagingFailure(ContainerError.file(error))
        }
    }

    /// Deletes the directory with its contents, and remains of earlier runs.
    ///
    /// Takes at most ``removalTime``, since a program may have created millions of files there. Later runs
    /// and `gc` delete the rest.
    package func remove() {
        let end = SuspendingClock.now + Self.removalTime
        do throws(FileError) {
            guard parentIsDedicated,
                let gone = FilePath.Component(ContainerLayout.removedPrefix + name.string)
            else {
                try parent.removeTree(name) { SuspendingClock.now >= end }
                return
            }
            try parent.rename(name, toUnused: gone, in: parent)
            try parent.removeTree(gone) { SuspendingClock.now >= end }
            for entry in try parent.entries()
            where entry.path.string.hasPrefix(ContainerLayout.removedPrefix) {
                try parent.removeTree(entry.name) { SuspendingClock.now >= end }
            }
        } catch  where error.errno == .interrupted {
            // The time limit has passed: later runs delete the rest.
        } catch {
            logger.warning(
                "A temporary directory cannot be removed",
                metadata: ["file.path": "\(error.path)", "error": "\(error)"]
            )
        }
    }

    /// Time limit of a deletion.
    private static let removalTime = Duration.seconds(2)
}
