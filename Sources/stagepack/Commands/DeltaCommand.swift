import ArgumentParser
import FoundationEssentials
import StageIndex
import StageModel
import StagePack
import StagePublish
import StageSystem
import SystemPackage

/// Creates delta sets for an index in a store.
struct DeltaCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "delta",
        abstract: "Shorten updates to an indexed pack from older versions.",
        discussion: """
            Makes delta sets or patches in the store that the index lies in: for each version that '--from' names, \
            what changed since, as differences from it, frame by frame or as one stream, whichever is smaller. \
            The bundles of all versions have to be in the store; the sources are not needed. Existing \
            delta sets and patches are left alone; new ones that do not make the update smaller are not kept.

            Clients use it once their manifest names it: with '--manifest' the manifest is edited, and \
            'stagepack manifest add' finds sets and patches by itself. A manifest names those from the 16 newest \
            versions, by the times of their indexes in the store.
            """
    )

    @Argument(
        help: "The index of the version that updates lead to, in its store.",
        completion: .file()
    )
    var index: String

    @Option(
        name: .customLong("from"),
        parsing: .upToNextOption,
        help: ArgumentHelp(
            "The indexes of older versions; with '--manifest' also older manifests.",
            valueName: "file"
        ),
        completion: .file()
    )
    var bases: [String]

    @Flag(
        help: "Make delta sets only, also where patches are smaller; existing patches are kept."
    )
    var noPatches = false

    @Option(
        help: ArgumentHelp(
            "The compression level of new patches, 1 to 22; existing patches are kept. Default: 19, or 12 "
                + "for parts of more than 8 MiB where 19 is not expected to save much.",
            valueName: "number"
        )
    )
    var level: Int?

    @Option(
        help: ArgumentHelp(
            "A manifest that offers the index, to name sets and patches.",
            valueName: "file"
        ),
        completion: .file()
    )
    var manifest: String?

    @OptionGroup(title: "Keys") var signing: SigningOptions
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    var quiet: Bool { messageOptions.quiet }

    mutating func validate() throws {
        if bases.isEmpty {
            throw ValidationError("'delta' needs older versions: pass '--from'.")
        }
        if let level {
            guard 1...22 ~= level else {
                throw ValidationError("'--level' is a number from 1 to 22.")
            }
            if noPatches {
                throw ValidationError("'--level' is for patches: leave out '--no-patches'.")
            }
        }
        if manifest == nil, !signing.keys.isEmpty {
            throw ValidationError("'--key' is for '--manifest'.")
        }
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let store = try store()
        let stored = try IndexFile(index).read()
        let target = try manifest.map { path throws(CommandFailure) in
            try Target(ManifestFile(path), offering: stored, signing: signing)
        }
        defer { target?.keyring.finish() }
        let versions = try BaseVersions(
            bases,
            of: target?.pack,
            in: store.path,
            keepsFirst: false
        )
        let updates = try await write(to: stored, from: versions, in: store)
        // Reads the index again, now with the new sets.
        let lock = try await IndexFile(index).lockStoreAgainstCollection()
        let present = try await IndexFile(index).readForOffer()
        var report = DeltasReport(index: index, updates, from: versions)
        report.unnamedBases = present.unnamedBases
        if let target {
            let (document, isChanged) = try await target.file.change {
                document throws(ManifestEditError) in try document.nameDeltas(of: present)
            }
            report.manifest = ManifestEditReport(
                file: target.file.name,
                document: document,
                pack: target.pack,
                isChanged: isChanged
            )
        }
        _ = consume lock
        guard let target else {
            Console.print(change: report, asJSON: json)
            return .success
        }
        return try await target.file.conclude(report, signing: target.keyring, asJSON: json)
    }

    /// A manifest that is to name the sets.
    private struct Target {
        let file: ManifestFile
        let pack: PackID
        let keyring: Keyring

        /// Checks the manifest and the keys before any set is created.
        init(
            _ file: ManifestFile,
            offering stored: StoredIndex,
            signing: SigningOptions
        ) throws(CommandFailure) {
            let content = stored.reference.contentDigest
            let packs = try file.read().manifest.packs
            guard let pack = packs.first(where: { $0.index?.contentDigest == content }) else {
                throw CommandFailure(.notOffered(content), manifest: file.name)
            }
            self.file = file
            self.pack = pack.id
            keyring = try signing.keyring(for: file)
        }
    }

    /// Opens the store that contains the index.
    private func store() throws(CommandFailure) -> Directory {
        do throws(FileError) {
            if let store = try IndexFile(index).store() { return store }
        } catch {
            throw IndexFile.failure(reading: error)
        }
        var failure = CommandFailure.usage("'\(index.forDisplay())' is in no store")
        failure.hint = IndexFile.advice
        throw failure
    }

    private func write(
        to stored: StoredIndex,
        from versions: BaseVersions,
        in store: Directory
    ) async throws(CommandFailure) -> [BaseUpdate] {
        let name = FilePath(index).lastComponent?.string.prefix(12) ?? ""
        let display = PackagingDisplay(String(name), total: stored.index.installedSize)
        var writer = DeltaSetWriter(width: ProcessInfo.processInfo.activeProcessorCount)
        writer.makesPatches = !noPatches
        writer.patchLevel = level
        writer.report = { display.take(compared: $0, of: $1) }
        let configured = writer
        let indexes = versions.list.map(\.index)
        let (result, _) = await withInterruption(after: nil) {
            () async -> Result<[BaseUpdate], PackagingError> in
            await display.whileShown(isShown: !json && !quiet && Console.isInteractive) {
                do throws(PackagingError) {
                    return .success(
                        try await configured.write(to: stored, from: indexes, in: store)
                    )
                } catch {
                    return .failure(error)
                }
            }
        }
        do {
            return try result.get()
        } catch {
            var names = versions.names
            names[stored.reference.contentDigest] = index
            throw CommandFailure(error, recipe: index, naming: names)
        }
    }
}

/// Output of `delta`.
private struct DeltasReport: Encodable, CustomStringConvertible {
    /// The index of the version that the sets update to.
    var index: String
    var updates: [DeltaReport]
    /// The older versions without a set, because a manifest names at most 16.
    var leftOut: [String]
    /// The number of older versions whose deltas are in the store, but exceed the manifest's limit.
    var unnamedBases = 0
    /// The change of the manifest; `nil` without a manifest.
    var manifest: ManifestEditReport?

    init(index: String, _ updates: [BaseUpdate], from versions: BaseVersions) {
        self.index = index
        self.updates = zip(versions.list, updates).map { DeltaReport(from: $0.name, $1) }
        leftOut = versions.leftOut
    }

    var description: String {
        var lines = ["\(index.forDisplay()):"] + updates.map { "  from \($0)" }
        lines += leftOut.map { "  from \($0.forDisplay()): \(DeltaReport.tooMany)" }
        if unnamedBases > 0 { lines.append("  \(UnnamedBases.text(unnamedBases))") }
        if let manifest { lines.append(manifest.description) }
        return lines.joined(separator: "\n")
    }
}

/// Text about deltas in a store that exceed a manifest's limit.
enum UnnamedBases {
    /// Returns a fragment for people.
    static func text(_ count: Int) -> String {
        "deltas from \(count) older \(count == 1 ? "version" : "versions") in the store are not named: a "
            + "manifest names those from the \(ManifestLimits.deltas) newest"
    }
}
