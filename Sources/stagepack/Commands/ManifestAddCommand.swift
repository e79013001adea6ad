import ArgumentParser
import StageArchive
import StageModel
import StagePublish
import StageSystem
import SystemPackage

struct ManifestAddCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "add",
        abstract: "Put a pack into a manifest.",
        discussion: """
            The archive, or the index, which 'stagepack package' or another program has made, is read from its first \
            byte to its last; the recipe says whose archive it is, its policy and 'userInfo'. A pack \
            that is there already is replaced by a higher version, and the manifest's revision goes up. \
            Other content under a version that is there is refused. All else in the manifest stays.

            'stagepack package' writes beside its archive or index what it was made from ('.pack.json'): one that \
            was made from another recipe, or has changed since, is refused.
            """
    )

    @Argument(help: "The manifest's file.", completion: .file()) var manifest: String
    @Argument(help: "The archive, or the index of an indexed pack.", completion: .file())
    var archive: String

    @Option(help: ArgumentHelp("The recipe of the pack.", valueName: "file"), completion: .file())
    var recipe: String

    @Option(help: ArgumentHelp("The version of the pack.", valueName: "number"))
    var packVersion: Int

    @Option(
        help: ArgumentHelp(
            "The future URL of the archive, for the manifest. Default: its path from the "
                + "manifest's directory, or its name if it is elsewhere.",
            valueName: "url"
        )
    )
    var url: String?

    @Option(
        help: ArgumentHelp(
            "The format of the archive. Default: the one that its name ends with.",
            valueName: "format"
        )
    )
    var format: ArchiveFormatArgument?

    @Option(
        help: ArgumentHelp(
            "Orders packs of one policy: higher comes first. Default: unchanged.",
            valueName: "number"
        )
    )
    var priority: Int?

    @Flag(help: "Replace the content of a version that no client has downloaded yet.")
    var replace = false

    @OptionGroup(title: "Keys") var signing: SigningOptions
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    mutating func validate() throws {
        guard packVersion >= 1 else {
            throw ValidationError("'--pack-version': expected 1 or more, found \(packVersion).")
        }
        do throws(ValueError) {
            if let url { try URLReference.check(url, form: .absoluteOrRelative) }
        } catch {
            throw ValidationError("'--url': \(error).")
        }
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let file = ManifestFile(manifest)
        // Reports errors of the manifest or a key before an archive is read.
        _ = try file.read()
        for member in Manifest.misspeltMembers(in: try file.bytes()) {
            Console.note("stagepack: warning: \(manifest.forDisplay()): \(member)")
        }
        let keyring = try signing.keyring(for: file)
        defer { keyring.finish() }
        let source = try RecipeFile(recipe).read()
        let record = try record(for: source)
        guard let format = format?.format ?? ManifestLint.format(ofPath: archive) else {
            let index = IndexFile(archive)
            let lock = try await index.lockStoreAgainstCollection()
            let stored = try await index.readForOffer(canBeArchive: true)
            try check(record, against: stored.reference.digest)
            if stored.unnamedBases > 0 {
                Console.note("stagepack: note: \(UnnamedBases.text(stored.unnamedBases))")
            }
            let reference = reference(in: file)
            let pack = stored.pack(of: source, version: packVersion, url: reference)
            let status = try await put(pack, into: file, signing: keyring)
            _ = consume lock
            return status
        }
        let (path, display) = (FilePath(archive), archive.forDisplay())
        let packaged: PackagedArchive
        do throws(ArchiveError) {
            packaged = try await withBlockingThread { () throws(ArchiveError) in
                try PackagedArchive(
                    reading: path,
                    format: format,
                    for: source,
                    decoding: .process(
                        executable: UnpackServiceCommand.executable,
                        arguments: UnpackServiceCommand.arguments
                    )
                )
            }
        } catch {
            throw CommandFailure(error, archive: display)
        }
        try check(record, against: packaged.digest)
        let pack = packaged.pack(version: packVersion, url: reference(in: file))
        return try await put(pack, into: file, signing: keyring)
    }

    /// Returns the record of the archive or index, after checking that it was made from the recipe.
    private func record(for source: Recipe) throws(CommandFailure) -> PackRecord? {
        do throws(PackRecordError) {
            guard let record = try PackRecord.read(beside: FilePath(archive)) else {
                if !messageOptions.quiet {
                    let name = PackRecord.path(beside: FilePath(archive)).string.forDisplay()
                    Console.note(
                        "stagepack: note: there is no '\(name)' to compare the recipe with"
                    )
                }
                return nil
            }
            try record.check(source)
            return record
        } catch {
            throw CommandFailure(error, archive: archive, recipe: recipe, pack: source.pack)
        }
    }

    private func check(_ record: PackRecord?, against digest: Digest) throws(CommandFailure) {
        do throws(PackRecordError) {
            try record?.check(digest)
        } catch {
            throw CommandFailure(error, archive: archive, recipe: recipe)
        }
    }

    /// Returns the URL of the archive; warns if it is only the name of a file that is elsewhere.
    private func reference(in file: ManifestFile) -> String {
        if let url { return url }
        let (reference, isBelow) = file.reference(to: FilePath(archive))
        let hasBase = (try? file.read())?.manifest.baseURLs.isEmpty == false
        if !isBelow, !hasBase {
            Console.note(
                """
                stagepack: warning: '\(archive.forDisplay())' is not in the manifest's directory, where clients \
                will ask for '\(reference)'
                hint: move it there, or pass its URL with --url
                """
            )
        }
        return reference
    }

    private func put(
        _ pack: Pack,
        into file: ManifestFile,
        signing keyring: Keyring
    ) async throws(CommandFailure) -> ExitStatus {
        let (document, isChanged) = try await file.change { document throws(ManifestEditError) in
            try document.add(pack, priority: priority, replacesContent: replace)
        }
        let report = ManifestEditReport(
            file: manifest,
            document: document,
            pack: pack.id,
            isChanged: isChanged
        )
        return try await file.conclude(report, signing: keyring, asJSON: json)
    }
}
