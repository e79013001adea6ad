import ArgumentParser
import FoundationEssentials
import StageArchive
import StageModel
import StagePack
import StagePublish
import StageSystem
import SystemPackage

/// Creates a pack from the files that a recipe selects.
struct PackageCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "package",
        abstract: "Make a pack from a packaging recipe.",
        discussion: """
            Reads the recipes of Apple's 'ba-package' ('stagepack template' writes one). The same \
            files give the same bytes, whenever and wherever. Prints what a manifest has to say of \
            the pack; 'stagepack manifest add' puts it there.

            With '--indexed' the pack is an index with bundles, in a store that any web server can \
            serve: an update then costs about the bytes that changed. Beside them lies an archive \
            of all files, for first installations. '--base' names the index of the version before; \
            if its bundles are in the store, what changed is also stored as differences from it: \
            frame by frame (a delta set), or as one stream where that is smaller (a patch). \
            Further '--base' give one of both for clients that have these versions; 'stagepack \
            delta' makes them later.
            """
    )

    @Argument(help: "The recipe.", completion: .file())
    var recipe: String

    @Option(
        name: [.customShort("o"), .customLong("output-path")],
        help: ArgumentHelp(
            "The archive or the store to write. Default: an archive in the current directory, named "
                + "after the pack.",
            valueName: "path"
        ),
        completion: .file()
    )
    var output: String?

    @Option(
        help: ArgumentHelp(
            "tar.zst, tar.gz, tar.xz or tar. Default: the one that the archive's name ends with, else "
                + "tar.zst.",
            valueName: "format"
        ),
        completion: .list(["tar.zst", "tar.gz", "tar.xz", "tar"]),
        transform: Self.format
    )
    var format: ArchiveFormat?

    @Option(
        help: ArgumentHelp(
            "The compression level: up to 19 for tar.zst, up to 22 for an indexed pack and its patches, up to 9 for "
                + "the others. Default: 19 (fast for incompressible files), 9 for tar.gz, 6 for tar.xz.",
            valueName: "number"
        )
    )
    var level: Int?

    @Flag(help: "Make an index and bundles, in a store, instead of an archive.")
    var indexed = false

    @Option(
        help: ArgumentHelp(
            "With '--indexed': the index of the version before, as 'package' named it, or a manifest "
                + "that has it. May be given more than once: content is reused from the first, and "
                + "updates from each, at most the newest 16, get a delta set or a patch.",
            valueName: "file"
        ),
        completion: .file()
    )
    var base: [String] = []

    @Flag(help: "With '--base': store nothing as differences from files of these versions.")
    var noDeltas = false

    @Flag(
        help:
            "With '--base': make delta sets only, also where patches are smaller; existing patches are kept."
    )
    var noPatches = false

    @Flag(help: "With '--indexed': make no archive of the files for first installations.")
    var noArchive = false

    @Flag(help: "Print what the recipe selects, and write nothing.") var evaluate = false
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    var quiet: Bool { messageOptions.quiet }

    mutating func validate() throws {
        try checkOutput()
        if indexed {
            if format != nil { throw ValidationError("'--format' is for archives.") }
            if noPatches, base.isEmpty { throw ValidationError("'--no-patches' is for '--base'.") }
            if noDeltas, base.isEmpty { throw ValidationError("'--no-deltas' is for '--base'.") }
            guard let level, !(1...22).contains(level) else { return }
            throw ValidationError("'--level' of an indexed pack is a number from 1 to 22.")
        }
        if noDeltas { throw ValidationError("'--no-deltas' is for '--indexed'.") }
        if noPatches { throw ValidationError("'--no-patches' is for '--indexed'.") }
        if noArchive { throw ValidationError("'--no-archive' is for '--indexed'.") }
        if !base.isEmpty { throw ValidationError("'--base' is for '--indexed'.") }
        try checkEnding()
        let levels = ArchivePackager.levels(of: archiveFormat) ?? 0...0
        guard let level, !levels.contains(level) else { return }
        throw ValidationError(
            levels == 0...0
                ? "'\(archiveFormat.rawValue)' has no '--level'."
                : "'--level' of '\(archiveFormat.rawValue)' is a number from "
                    + "\(levels.lowerBound) to \(levels.upperBound)."
        )
    }

    /// Refuses outputs that another command line was probably meant to have.
    private func checkOutput() throws {
        guard let output else { return }
        if evaluate { throw ValidationError("'--evaluate' writes nothing, and takes no '-o'.") }
        if output == "-" {
            throw ValidationError("'-o' names a file: 'package' writes none to standard output.")
        }
        guard let implied = ManifestLint.format(ofPath: output) else { return }
        if indexed {
            throw ValidationError(
                "'-o' of '--indexed' names a store, which is a directory, found '\(output.forDisplay())'."
            )
        }
        if let format, format != implied, Self.canWrite(implied) {
            throw ValidationError(
                "'--format \(format.rawValue)' contradicts the name '\(output.forDisplay())'."
            )
        }
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let evaluation = try await RecipeFile(recipe).evaluation()
        if !json { Self.note(evaluation.warnings) }
        if evaluate {
            let report = EvaluationReport(evaluation)
            Console.print(report, asJSON: json, schema: OutputSchema("package-evaluation"))
        } else if indexed {
            try checkSelection(of: evaluation, in: FilePath(output ?? "."))
            let report = try await packIndexed(evaluation)
            Console.print(change: report, asJSON: json, schema: OutputSchema("package-indexed"))
            for warning in report.bundleWarnings where !json {
                Console.note("stagepack: warning: \(warning)")
            }
        } else {
            let report = try await packArchive(evaluation)
            Console.print(change: report, asJSON: json)
        }
        return .success
    }

    /// Prints warnings: all with `--verbose`, otherwise the first ones of each kind, since a tree may have hundreds.
    private static func note(_ warnings: [RecipeEvaluation.Warning]) {
        let counts = Dictionary(grouping: warnings, by: \.kind).mapValues(\.count)
        var printed: [String: Int] = [:]
        for warning in warnings {
            let number = printed[warning.kind, default: 0] + 1
            printed[warning.kind] = number
            guard number > 3, let count = counts[warning.kind], count > 4, !Console.isVerbose else {
                Console.note("stagepack: warning: \(warning)")
                continue
            }
            if number == count {
                Console.note(
                    "stagepack: warning: \(count - 3) more \(warning.kind); '--verbose' prints them"
                )
            }
        }
    }

    private func packArchive(
        _ evaluation: RecipeEvaluation
    ) async throws(CommandFailure) -> PackageReport {
        let pack = evaluation.recipe.pack
        let file = output ?? "\(pack).\(archiveFormat.rawValue)"
        try checkSelection(of: evaluation, writing: FilePath(file))
        let display = PackagingDisplay("\(pack)", total: evaluation.installedSize)
        var packager = ArchivePackager(
            format: archiveFormat,
            level: level,
            // At the highest level, each thread takes about 100 MB.
            threads: min(ProcessInfo.processInfo.activeProcessorCount, 8)
        )
        packager.progress = { display.take(archive: $0) }
        let configured = packager
        // A record that cannot be read is replaced.
        let replaced = (try? PackRecord.read(beside: FilePath(file)))?.digest
        let (result, _) = await withInterruption(after: nil) {
            () async -> Result<PackagedArchive, PackagingError> in
            await display.whileShown(isShown: !json && !quiet && Console.isInteractive) {
                do throws(PackagingError) {
                    return .success(try await configured.write(evaluation, to: FilePath(file)))
                } catch {
                    return .failure(error)
                }
            }
        }
        do {
            let report = PackageReport(file: file, try result.get(), of: evaluation)
            if let replaced, replaced != report.sha256 {
                Console.note(
                    "stagepack: warning: '\(file.forDisplay())' had other content before: add the new content "
                        + "to manifests as a new version"
                )
            }
            return report
        } catch {
            throw CommandFailure(error, recipe: recipe)
        }
    }

    private var archiveFormat: ArchiveFormat {
        format ?? writtenName.flatMap { ManifestLint.format(ofPath: $0) } ?? .tarZstandard
    }

    /// The path of the file that is written: for a link, that of the file that it leads to.
    private var writtenName: String? {
        output.map { FilePath($0).resolvedIfLink.string }
    }

    /// Endings of archives in formats that packs cannot have.
    private static let otherEndings = [".7z", ".rar", ".tar.lzma", ".tar.lzo", ".tar.br"]

    /// Refuses a file whose name says another format than its content has.
    private func checkEnding() throws {
        guard format == nil, let output = writtenName else { return }
        let implied = ManifestLint.format(ofPath: output)
        let isOther = Self.otherEndings.contains { output.lowercased().hasSuffix($0) }
        guard isOther || implied.map(Self.canWrite) == false else { return }
        throw ValidationError(
            "expected a name that ends in .tar.zst, .tar.gz, .tar.xz or .tar, found "
                + "'\(output.forDisplay())': '--format' makes one of these under any name."
        )
    }

    private static func canWrite(_ format: ArchiveFormat) -> Bool {
        ArchivePackager.levels(of: format) != nil
    }

    private static func format(_ text: String) throws -> ArchiveFormat {
        guard let format = ArchiveFormat(rawValue: text), canWrite(format) else {
            throw ValidationError(
                "expected tar.zst, tar.gz, tar.xz or tar, found '\(text.forDisplay(atMost: 60))'"
            )
        }
        return format
    }
}

/// A recipe on disk.
struct RecipeFile {
    private let path: String

    init(_ path: String) { self.path = path }

    /// Reads the recipe.
    func read() throws(CommandFailure) -> Recipe {
        let bytes: [UInt8]
        do throws(FileError) {
            // Reads one byte more than the limit, so that the error is about the size.
            bytes = try File.open(reading: FilePath(path)).readAll(limit: Recipe.byteLimit + 1)
        } catch {
            var failure = CommandFailure(argument: error)
            if failure.status == .usage {
                failure.hint =
                    "name the file of a recipe; 'stagepack template' prints one to begin with"
            }
            throw failure
        }
        do throws(ManifestError) {
            return try Recipe(json: bytes)
        } catch {
            throw CommandFailure(
                status: .manifestInvalid,
                message: "\(path.forDisplay()): \(error)",
                hint: Self.hint(for: error),
                retryAdvice: .never
            )
        }
    }

    private static func hint(for error: ManifestError) -> String {
        switch error {
        case .notJSON:
            "correct it: a recipe is JSON that may have comments and trailing commas, as 'stagepack template' prints"
        case .tooLarge: "select directories or patterns instead of single files"
        case .unknownVersion, .invalid, .duplicate:
            "'stagepack template' prints a recipe that describes all members"
        }
    }

    /// Reads the recipe, and finds the files that it selects, relative to the current directory.
    func evaluation() async throws(CommandFailure) -> RecipeEvaluation {
        let recipe = try read()
        do throws(PackagingError) {
            return try await withBlockingThread { () throws(PackagingError) in
                try RecipeEvaluation(recipe)
            }
        } catch {
            throw CommandFailure(error, recipe: path)
        }
    }
}
