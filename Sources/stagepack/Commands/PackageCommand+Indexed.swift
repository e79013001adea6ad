import FoundationEssentials
import StageIndex
import StageModel
import StagePublish
import StageSystem
import SystemPackage

extension PackageCommand {
    /// Makes an indexed pack in a store.
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
        let display = PackagingDisplay(pack, total: evaluation.installedSize)
        var writer = IndexedPackWriter(width: ProcessInfo.processInfo.activeProcessorCount)
        if let level { writer.level = level }
        writer.makesDeltas = !noDeltas
        writer.makesArchive = !noArchive
        if let base { writer.previous = try IndexFile(base).index(of: pack, in: path) }
        writer.report = { display.take($0) }
        writer.reportComparison = { display.take(compared: $0, of: $1) }
        writer.reportArchive = { display.take(archived: $0) }
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
        do {
            let packaged = try result.get()
            let file = output.map { "\($0)/" } ?? ""
            return IndexedPackageReport(file: file + packaged.reference.url, packaged)
        } catch {
            throw CommandFailure(error, recipe: recipe)
        }
    }
}

/// The index of a published version, named by its file or by a manifest.
struct IndexFile {
    private let path: String

    init(_ path: String) { self.path = path }

    /// Reads the index, whichever pack it is of; all of its archive is read, too, unless that is of no interest.
    func read(findsArchive: Bool = true) throws(CommandFailure) -> StoredIndex {
        do throws(StoredIndex.Fault) {
            return try StoredIndex(at: FilePath(path), findsArchive: findsArchive)
        } catch {
            throw Self.failure(error)
        }
    }

    /// Reads the index of a store that is about to be offered, and has its objects kept until it is.
    ///
    /// An index that is in no store is read alone.
    func readForOffer() throws(CommandFailure) -> StoredIndex {
        let stored = try read()
        let folder = FilePath(path).absolute.removingLastComponent()
        guard folder.lastComponent == "i" else { return stored }
        do throws(FileError) {
            let store = try Directory.open(folder.removingLastComponent())
            guard let bundles = try store.directory("b") else { return stored }
            for bundle in stored.index.bundles {
                let name = FilePath("\(bundle.digest)")
                guard try bundles.status(name)?.size == bundle.size else {
                    throw FileError("open", bundles.path.pushing(name), .noSuchFileOrDirectory)
                }
            }
            try StoreMark.write(stored, to: store)
        } catch {
            throw CommandFailure(output: error)
        }
        return stored
    }

    /// Reads the index of a pack: the file itself or, where that is a manifest, what it names in a
    /// store.
    func index(of pack: PackID, in store: FilePath) throws(CommandFailure) -> ContentIndex {
        guard let manifest = try manifest() else { return try read(findsArchive: false).index }
        guard let reference = manifest[pack]?.index else {
            throw .usage("the manifest '\(path.forDisplay())' has no index of the pack '\(pack)'")
        }
        let name = reference.url.split(separator: "/").suffix(2).joined(separator: "/")
        return try IndexFile(store.pushing(FilePath(name)).string).read(findsArchive: false).index
    }

    /// The manifest that the file is; `nil` for anything else.
    private func manifest() throws(CommandFailure) -> Manifest? {
        do throws(FileError) {
            let limit = IndexLimits.byteCount
            let bytes = try File.open(readingRegular: FilePath(path)).readAll(limit: limit)
            // What is no manifest is an index, or refused as one.
            return try? Manifest(json: bytes)
        } catch {
            throw .usage(error.description)
        }
    }

    private static func failure(_ fault: StoredIndex.Fault) -> CommandFailure {
        var failure = CommandFailure.usage(fault.description)
        if case .notAnIndex = fault {
            failure.hint = "name a file of the folder 'i' of a store"
        }
        return failure
    }
}
