import StageDigest
import StageModel
import StagePack
import StagePublish
import StageSystem
import SystemPackage

extension PackageCommand {
    /// Refuses a recipe that selects the archive of an earlier run, which this run replaces, or its record.
    ///
    /// - Throws: ``CommandFailure`` that names the file.
    func checkSelection(
        of evaluation: RecipeEvaluation,
        writing output: FilePath
    ) throws(CommandFailure) {
        for written in [output.resolvedIfLink, PackRecord.path(beside: output)] {
            // A file that does not exist yet is not selected.
            guard let identity = written.fileIdentity else { continue }
            let selected = evaluation.entries.first { entry in
                entry.content.kind != .directory
                    && entry.file.lastComponent == written.lastComponent
                    && entry.file.fileIdentity == identity
            }
            if let selected { throw Self.ownOutput(selected, recipe: recipe) }
        }
    }

    /// Refuses a recipe that selects objects of the store to which this run writes.
    ///
    /// - Throws: ``CommandFailure`` that names one of the objects.
    func checkSelection(
        of evaluation: RecipeEvaluation,
        in store: FilePath
    ) throws(CommandFailure) {
        let folders = StoreObjectKind.allCases
            .compactMap { store.appending($0.folder).fileIdentity }
        guard !folders.isEmpty else { return }
        let selected = evaluation.entries.first { entry in
            let name = entry.file.lastComponent?.string ?? ""
            // Other content may lie in folders with these names.
            guard (try? Digest(hexadecimal: String(name.prefix(64)))) != nil else { return false }
            guard let folder = entry.file.removingLastComponent().fileIdentity else { return false }
            return folders.contains(folder)
        }
        if let selected { throw Self.ownOutput(selected, recipe: recipe) }
    }

    private static func ownOutput(
        _ selected: RecipeEvaluation.Entry,
        recipe: String
    ) -> CommandFailure {
        CommandFailure(
            status: .packagingFailed,
            message:
                "\(recipe.forDisplay()): it selects '\(selected.file.string.forDisplay())', which this command writes",
            hint: "write it elsewhere with --output-path, or leave it out with a 'fileExclusion'",
            retryAdvice: .never
        )
    }
}

extension FilePath {
    /// The device and the inode of the file; `nil` if it cannot be inspected.
    fileprivate var fileIdentity: [UInt64]? {
        let parent = removingLastComponent()
        guard let name = lastComponent,
            // Errors are those of the run that reads or writes the file.
            let status = try? Directory.open(parent.isEmpty ? "." : parent).status(FilePath(name))
        else { return nil }
        return [status.device, status.inode]
    }
}
