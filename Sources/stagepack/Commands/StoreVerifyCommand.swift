import ArgumentParser
import FoundationEssentials
import StageModel
import StagePack
import StagePublish
import StageSystem
import SystemPackage

struct StoreVerifyCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "verify",
        abstract:
            "Compare every byte of a store with the names of its objects, and with manifests.",
        discussion: """
            Objects are named by their digests, so damage by a disk or an incomplete copy is found. With '--manifest', what the \
            manifest offers has to be in the store, too. Nothing is changed.

            Ends with status 3 if an object is damaged or missing.
            """
    )

    @Argument(
        help: "The store: the directory with the folders 'i' and 'b'.",
        completion: .directory
    )
    var store: String

    @Option(
        help: ArgumentHelp(
            "A manifest with packs in the store; may be given more than once.",
            valueName: "file"
        ),
        completion: .file()
    )
    var manifest: [String] = []

    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        let manifests = try ManifestFile.published(manifest)
        // A manifest of another store would make every comparison succeed.
        guard
            manifests.isEmpty
                || manifests.contains(where: { $0.manifest.packs.contains { $0.index != nil } })
        else { throw CommandFailure(StoreGarbageCollectionError.nothingIndexed) }
        let directory: Directory
        do throws(FileError) {
            directory = try Directory.open(FilePath(store))
        } catch {
            throw CommandFailure(store: error)
        }
        try check(directory, offeredBy: manifests)
        let verification = try await verify(directory, offeredBy: manifests)
        guard verification.intact.objects > 0 || !verification.findings.isEmpty else {
            var failure = CommandFailure.usage("'\(store.forDisplay())' has no objects of a store")
            failure.hint = "name the directory with the folders 'i' and 'b'"
            throw failure
        }
        let report = VerificationReport(verification)
        let failures = verification.shortage.map { [IndexFile.failure($0)] } ?? []
        if json || !messageOptions.quiet {
            Console.print(report, failures: failures, asJSON: json)
        } else {
            for finding in report.findings { Console.say(finding.description) }
            Console.report(failures)
        }
        if let failure = failures.first { return failure.status }
        return verification.findings.isEmpty ? .success : .findings
    }

    /// Refuses a directory that has none of the folders of a store.
    private func check(
        _ directory: Directory,
        offeredBy manifests: [PublishedManifest]
    ) throws(CommandFailure) {
        do throws(FileError) {
            for kind in [StoreObjectKind.index, .bundle]
            where try directory.status(FilePath(kind.folder)) != nil {
                return
            }
        } catch {
            throw CommandFailure(output: error)
        }
        let index = StoreObjectKind.index.folder
        var failure = CommandFailure.usage(
            "'\(store.forDisplay())' is not a store: it has no folder '\(index)'"
        )
        failure.hint =
            storeOfManifests(manifests).map { "name the store: '\($0.string.forDisplay())'" }
            ?? "name the directory with the folders 'i' and 'b'"
        throw failure
    }

    /// Returns the store to which the relative URLs of the manifests lead, if it exists.
    private func storeOfManifests(_ manifests: [PublishedManifest]) -> FilePath? {
        let urls = manifests.flatMap(\.manifest.packs).compactMap(\.index?.url)
        for file in manifest {
            for url in urls where !url.contains(":") {
                let folder = FilePath(file).removingLastComponent().pushing(FilePath(url))
                    .removingLastComponent()
                if folder.lastComponent?.string == StoreObjectKind.index.folder,
                    FileStatus.exists(folder)
                {
                    let found = folder.removingLastComponent()
                    return found.isEmpty ? "." : found
                }
            }
        }
        return nil
    }

    /// Verifies the store, and shows the progress at a terminal.
    private func verify(
        _ directory: Directory,
        offeredBy manifests: [PublishedManifest]
    ) async throws(CommandFailure) -> StoreVerification {
        let display = PackagingDisplay(
            FilePath(store).lastComponent?.string ?? store,
            total: .zero
        )
        let isShown = !json && Console.isInteractive
        let width = ProcessInfo.processInfo.activeProcessorCount
        let (result, interruption) = await withInterruption(after: nil) {
            () async -> Result<StoreVerification, FileError> in
            await display.whileShown(isShown: isShown) {
                do throws(FileError) {
                    let lock = try await StoreLock(
                        directory,
                        canBeReadOnly: true,
                        removesTemporaryFiles: false
                    )
                    return .success(
                        try await StoreVerification.verify(
                            directory,
                            holding: lock,
                            offeredBy: manifests,
                            width: width
                        ) { display.take(compared: $0, of: $1) }
                    )
                } catch {
                    return .failure(error)
                }
            }
        }
        guard interruption == nil else {
            throw CommandFailure(
                status: .interrupted,
                message: "not all objects were compared",
                hint: nil,
                retryAdvice: .now
            )
        }
        do throws(FileError) {
            return try result.get()
        } catch {
            throw CommandFailure(output: error)
        }
    }
}

/// Output of `store verify`.
private struct VerificationReport: Encodable, CustomStringConvertible {
    /// An object that is missing or has other bytes.
    struct Finding: Encodable, CustomStringConvertible {
        /// The path in the store.
        var object: String
        /// 'missing', 'damaged' or 'unreadable'.
        var kind: String
        /// The reason why an object cannot be read.
        var reason: String?
        /// The packs of the manifests that need the object.
        var packs: [PackID]

        init(_ finding: StoreVerification.Finding) {
            object = finding.path
            packs = finding.packs
            switch finding.fault {
            case .missing: kind = "missing"
            case .damaged: kind = "damaged"
            case .unreadable(let error):
                kind = "unreadable"
                reason = error.description
            }
        }

        var isMissingBundle: Bool {
            kind == "missing" && object.hasPrefix("\(StoreObjectKind.bundle.folder)/")
        }

        var description: String {
            let users = packs.map(\.text).joined(separator: ", ")
            return "\(object): \(reason ?? kind)" + (packs.isEmpty ? "" : ", needed by \(users)")
        }
    }

    /// The objects that have no findings.
    var objects: Int
    var size: ByteCount
    var findings: [Finding]
    /// The number of versions of packs in other stores.
    var packsOfOtherStores: Int
    /// `false` if the store has none of the objects that the manifests name, for people.
    private let hasNamedObjects: Bool

    private enum CodingKeys: CodingKey { case objects, size, findings, packsOfOtherStores }

    init(_ verification: StoreVerification) {
        hasNamedObjects = verification.hasNamedObjects
        objects = verification.intact.objects
        size = verification.intact.size
        findings = verification.findings.map(Finding.init)
        packsOfOtherStores = verification.packsOfOtherStores
    }

    var description: String {
        var intact = ["undamaged: \(objects.quantity(of: "object")) (\(size))"]
        if packsOfOtherStores > 0 {
            intact.append("in other stores: \(packsOfOtherStores.quantity(of: "pack"))")
        }
        guard !findings.isEmpty else { return intact.joined(separator: "\n") }
        return (findings.map(\.description) + intact + [advice]).joined(separator: "\n")
    }

    private var advice: String {
        if findings.allSatisfy({ $0.reason != nil }) {
            return "Make the objects readable, then run it again."
        }
        guard hasNamedObjects else {
            return "Name the store and the manifests that were published from it."
        }
        let restore =
            "Restore the objects from another copy of the store. Without one, package the next version"
        // The next version would name a missing bundle.
        if findings.contains(where: \.isMissingBundle) { return restore + " without '--base'." }
        return restore
            + ": with '--base' if the index of the previous version is undamaged; damaged bundles are not used."
    }
}
