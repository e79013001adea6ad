public import StageArchive
import StageDigest
public import StageModel
import StageSystem
public import SystemPackage

extension PackagedArchive {
    /// Reads an archive that was made by whatever program, from its first byte to its last, for the
    /// pack of a recipe, decoding it where `mode` says.
    ///
    /// - Throws: ``StageArchive/ArchiveError`` for one that would not be unpacked.
    public init(
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
    }
}
