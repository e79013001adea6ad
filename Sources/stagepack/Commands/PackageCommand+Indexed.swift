import FoundationEssentials
import StageIndex
import StageModel
import StagePublish
import StageSystem
import SystemPackage

extension PackageCommand {
    /// Creates an indexed pack in a store.
    func packIndexed(
        _ evaluation: RecipeEvaluation
    ) async throws(CommandFailure) -> IndexedPackageReport {
        let pack = evaluation.recipe.pack
        let path = FilePath(output ?? ".")
        let store: Directory
        do throws(FileError) {
            store = try Directory.make(path)
        } catch {
            throw CommandFailure(output: error)
        }
        let display = PackagingDisplay("\(pack)", total: evaluation.installedSize)
        var writer = IndexedPackWriter(width: ProcessInfo.processInfo.activeProcessorCount)
        if let level { writer.level = level }
        writer.archiveLevel = level
        writer.patchLevel = level
        writer.makesDeltas = !noDeltas
        writer.makesPatches = !noPatches
        writer.makesArchive = !noArchive
        let bases = try BaseVersions(base, of: pack, in: path, keepsFirst: true)
        writer.previous = bases.list.first?.index ?? ContentIndex()
        writer.older = bases.list.dropFirst().map(\.index)
        writer.baseFiles = bases.list.map(\.file)
        writer.report = { display.take($0) }
        writer.reportComparison = { display.take(compared: $0, of: $1) }
        writer.reportArchive = { display.take(archive: $0) }
        let configured = writer
        let (result, _) = await withInterruption(after: nil) {
            () async -> Result<IndexedPack, PackagingError> in
            await display.whileShown(isShown: !json && !quiet && Console.isInteractive) {
                do throws(PackagingError) {
                    return .success(try await configured.write(evaluation, to: store))
                } catch {
                    return .failure(error)
                }
            }
        }
        let packaged: IndexedPack
        do {
            packaged = try result.get()
        } catch {
            throw CommandFailure(error, recipe: recipe, after: bases)
        }
        let file = output.map { "\($0)/" } ?? ""
        return IndexedPackageReport(
            file: file + packaged.reference.url,
            packaged,
            of: evaluation,
            from: bases
        )
    }
}
