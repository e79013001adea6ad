package import StageArchive
import StageDigest
package import StageModel
import StageSystem
package import SystemPackage

extension PackagedArchive {
    /// Reads a whole archive, made by any program, for the pack of a recipe; decodes it as `mode` says.
    ///
    /// - Throws: ``StageArchive/ArchiveError`` for an archive that cannot be unpacked.
    package init(
        reading path: FilePath,
        format: ArchiveFormat,
        for recipe: Recipe,
        decoding mode: Unpacker.Mode
    ) throws(ArchiveError) {
        do throws(FileError) {
            let file = try File.open(readingRegular: path)
            size = ByteCount(try file.status().size)
            digest = try Digest(of: file)
        } catch {
            throw .fileSystem(error)
        }
        let inventory = try ArchiveInventory(of: path, format: format, decoding: mode)
        pack = recipe.pack
        policy = recipe.policy
        userInfo = recipe.userInfo
        self.format = format
        installedSize = inventory.installedSize
        fileCount = inventory.fileCount
        directoryCount = inventory.directoryCount
    }
}
