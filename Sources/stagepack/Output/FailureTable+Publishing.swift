import StageArchive
import StageModel
import StagePack
import StagePublish
import StageSystem
import SystemPackage

// Failures of publishing.

extension CommandFailure {
    /// Creates the failure for an error of packaging; `recipe` is the recipe's file.
    init(_ error: PackagingError, recipe: String) {
        switch error {
        case .file(let error):
            self.init(output: error)
        case .incompleteUpdates(_, let fault):
            self.init(output: fault)
            message = error.description
        case .cancelled:
            self.init(
                status: .interrupted,
                message: error.description,
                hint: nil,
                retryAdvice: .now
            )
        case .changed:
            self.init(
                status: .packagingFailed,
                message: error.description,
                hint: "run it again when nothing writes to the files",
                retryAdvice: .now
            )
        default:
            self.init(
                status: .packagingFailed,
                message: "\(recipe.forDisplay()): \(error)",
                hint: Self.hint(for: error),
                retryAdvice: .never
            )
        }
    }

    private static func hint(for error: PackagingError) -> String? {
        switch error {
        case .nothingSelected:
            "paths are relative to the current directory, or to 'sourceRoot' of the recipe"
        case .collision:
            "give one of them another destination, or exclude it with 'fileExclusion'"
        case .notAllowed(let refused):
            refused.count == 1
                ? "change it, or exclude it with 'fileExclusion'"
                : "rename or change them, or exclude them with 'fileExclusion'"
        case .base(_, let fault):
            Self.hint(for: fault)
        case .overLimit, .changed, .file, .compressor, .incompleteUpdates, .cancelled:
            nil
        }
    }

    private static func hint(for fault: BaseFault) -> String {
        switch fault {
        case .sameVersion: "name indexes of older versions"
        case .missingBundle: "name an index of the same store, none of whose objects were removed"
        case .unrelated: "name an index of the same pack"
        }
    }

    /// Creates the failure for an error of packaging; `recipe` is the recipe's file, or the index, and
    /// `versions` are the names of the indexes on the command line, by digest.
    init(_ error: PackagingError, recipe: String, naming versions: [Digest: String]) {
        if case .base(let digest, let fault) = error, let name = versions[digest] {
            self = .usage("'\(name.forDisplay())': \(fault)")
            hint = Self.hint(for: fault)
        } else {
            self.init(error, recipe: recipe)
        }
    }

    /// Creates the failure for an error of packaging a version after older ones.
    init(_ error: PackagingError, recipe: String, after bases: BaseVersions) {
        self.init(error, recipe: recipe, naming: bases.names)
        guard case .incompleteUpdates(let index, let fault) = error else { return }
        let older = bases.list.flatMap { ["--from", $0.file.string] }
        let advice = "\(HintSource.quoted(["delta", index.string] + older)) makes the rest"
        hint = fault.isOutOfSpace ? "\(fault.spaceAdvice); \(advice)" : advice
    }

    /// Creates the failure for a file of the publisher that cannot be read or written.
    init(output error: FileError) {
        if error.isHeldByOthers {
            let command = HintSource.enclosed("fuser -v \(Self.quoted(error.path.string))")
            self.init(
                status: .inUse,
                message: error.description,
                hint: "run it again when that process has ended; to see it, run \(command)",
                retryAdvice: .later
            )
            return
        }
        self.init(
            status: error.isOutOfSpace ? .noSpace : .packagingFailed,
            message: error.description,
            hint: error.isOutOfSpace ? error.spaceAdvice : Self.hint(forFolder: error),
            retryAdvice: error.isOutOfSpace ? .later : .never
        )
    }

    /// The hint for a new file whose name exists already, and which may be a private key.
    static let hintForExistingFile = "name a file that does not exist"

    /// Returns the hint for a file, or a link that no command follows, instead of a directory; `nil` for other errors.
    private static func hint(forFolder error: FileError) -> String? {
        guard error.errno == .notDirectory else { return nil }
        guard let name = error.path.lastComponent?.string,
            StoreObjectKind.allCases.contains(where: { $0.folder == name }),
            FileStatus.isSymbolicLink(error.path), (try? Directory.open(error.path)) != nil
        else { return "there is a file instead of a directory: move it, or name another path" }
        return
            "the folder '\(name)' of a store cannot be a link: put the folder there, or link the whole store"
    }
}

extension CommandFailure {
    /// Creates the failure for an error of changing a manifest.
    init(_ error: ManifestEditError, manifest: String) {
        let status: ExitStatus
        let hint: String?
        switch error {
        case .manifest:
            (status, hint) = (
                .manifestInvalid, "run \(HintSource.quoted(["manifest", "lint", manifest]))"
            )
        case .unknownPack:
            (status, hint) = (.unknownPack, nil)
        case .contentOfVersionChanged:
            (status, hint) = (
                .manifestRefused,
                "raise --pack-version, or pass --replace if no client has fetched that version"
            )
        case .lastRevision:
            (status, hint) = (
                .manifestRefused,
                "offer the packs under another URL: clients accept no lower revision"
            )
        case .versionWentBack:
            (status, hint) = (.manifestRefused, "raise --pack-version: a version never goes back")
        case .notOffered:
            (status, hint) = (
                .unknownPack,
                "'stagepack manifest add' adds the version, with the delta sets of its store"
            )
        }
        self.init(
            status: status,
            message: "\(manifest.forDisplay()): \(error)",
            hint: hint,
            retryAdvice: .never
        )
    }

    /// Creates the failure to open the directory of a store that the command line names.
    init(store error: FileError) {
        self.init(argument: error)
        if status == .usage { hint = "name the directory with the folders 'i' and 'b'" }
    }

    /// Creates the failure for a version with a damaged index or bundle, which no client could install.
    init(damagedObject path: FilePath) {
        self.init(
            status: .packagingFailed,
            message: "'\(path)' is damaged: its bytes have another digest than its name",
            hint: "package the version again; 'stagepack store verify' finds all damage",
            retryAdvice: .never
        )
    }

    /// Creates the failure for an index that does not fit in memory.
    init(noMemory message: String) {
        self.init(
            status: .systemShortage,
            message: message,
            hint: SystemShortage.limitHint,
            retryAdvice: .later
        )
    }

    /// Creates the failure for an archive that cannot be added to a manifest.
    init(_ error: ArchiveError, archive: String) {
        if case .fileSystem(let error) = error {
            self.init(output: error)
            if error.path == FilePath(archive) { status = Self.status(ofArgument: error) }
        } else {
            self.init(
                status: .contentRefused,
                message: "'\(archive)': \(error)",
                hint:
                    "no application would unpack it; 'stagepack package --help' says how to make another",
                retryAdvice: .never
            )
        }
    }
}

extension CommandFailure {
    /// Creates the failure for an archive or index that does not belong to a recipe; `pack` is the recipe's pack.
    init(_ error: PackRecordError, archive: String, recipe: String, pack: PackID? = nil) {
        if case .file(let error) = error {
            self.init(output: error)
            return
        }
        let path = FilePath(archive)
        let file = PackRecord.path(beside: path)
        let record = CommandFailure.quoted(file.string)
        // An index, with its record, is in the folder 'i' of its store.
        let store = file.removingLastComponent().removingLastComponent()
        let output =
            ManifestLint.format(ofPath: archive) == nil
            ? ["--indexed", "-o", store.isEmpty ? "." : store.string] : ["-o", archive]
        let hint =
            switch error {
            case .otherRecipe(let other) where pack != other:
                "pass the recipe of pack '\(other)' with --recipe"
            case .invalid, .otherContent:
                "run \(HintSource.quoted(["package", recipe] + output)), or \"rm \(record)\" if another program made it"
            case .file, .otherRecipe: "run \(HintSource.quoted(["package", recipe] + output))"
            }
        self.init(
            status: .packagingFailed,
            message: "'\(archive.forDisplay())': \(error)",
            hint: hint,
            retryAdvice: .never
        )
    }
}

extension CommandFailure {
    /// Creates the failure for an error of removing objects from a store.
    init(_ error: StoreGarbageCollectionError) {
        switch error {
        case .file(let error), .index(_, .file(let error)):
            self.init(output: error)
        case .clockIsBehind:
            self.init(
                status: .packagingFailed,
                message: error.description,
                hint: "set the clock, then run it again",
                retryAdvice: .later
            )
        case .withoutLocks:
            self.init(
                status: .packagingFailed,
                message: error.description,
                hint:
                    "run it on a machine that can lock files there, such as the file server; '--dry-run' needs no locks",
                retryAdvice: .never
            )
        case .index(_, .noMemory(_, _, _)):
            self.init(noMemory: error.description)
        case .nothingIndexed, .missingIndex:
            self.init(
                status: .packagingFailed,
                message: error.description,
                hint:
                    "name the store and the manifests that were published from it; stores of other packs have to be where "
                    + "the relative URLs of the manifest lead",
                retryAdvice: .never
            )
        case .index:
            self.init(
                status: .packagingFailed,
                message: error.description,
                hint: "package the version again; 'stagepack package --help' describes '--indexed'",
                retryAdvice: .never
            )
        }
    }
}
