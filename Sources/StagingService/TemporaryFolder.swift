import FoundationEssentials
package import Logging
import StageContainer
import StageSystem
package import SystemPackage

/// A directory that is removed when its user has ended.
package struct TemporaryFolder {
    package let path: FilePath
    private let parent: Directory
    private let logger: Logger
    private let name: FilePath.Component
    /// Whether the parent has nothing but such directories.
    private let isAmongItsLike: Bool

    /// Makes a directory in `parent`, or where temporary files belong.
    package static func make(
        in parent: FilePath? = nil,
        logger: Logger
    ) throws(StagingFailure) -> TemporaryFolder {
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
            return TemporaryFolder(
                path: path,
                parent: directory,
                logger: logger,
                name: name,
                isAmongItsLike: parent != nil
            )
        } catch {
            throw StagingFailure(ContainerError.file(error))
        }
    }

    /// Removes the directory with everything in it, and what earlier runs have left of theirs.
    ///
    /// That takes ``removalTime`` at most, since a program may have put millions of files there. The rest is
    /// left to later runs and `gc`.
    package func remove() {
        let end = ContinuousClock.now + Self.removalTime
        do throws(FileError) {
            guard isAmongItsLike,
                let gone = FilePath.Component(ContainerLayout.removedPrefix + name.string)
            else {
                try parent.removeTree(name) { ContinuousClock.now >= end }
                return
            }
            try parent.rename(name, to: gone, in: parent, replacing: false)
            try parent.removeTree(gone) { ContinuousClock.now >= end }
            for entry in try parent.entries()
            where entry.name.string.hasPrefix(ContainerLayout.removedPrefix) {
                try parent.removeTree(entry.name) { ContinuousClock.now >= end }
            }
        } catch  where error.errno == .interrupted {
            // The time is over.
        } catch {
            logger.warning("\(error)")
        }
    }

    /// The most time for the removal.
    private static let removalTime = Duration.seconds(2)
}
