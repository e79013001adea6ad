import FoundationEssentials
import StageModel
import StagePack
import StagePublish
import StageSigning
import StageSystem
import StageTrust
import SystemPackage

extension ManifestFile {
    /// Signs the manifest in its current state, while no other command changes it.
    func sign(
        with keyring: Keyring,
        _ tasks: SigningTasks
    ) async throws(CommandFailure) -> SigningStateReport {
        try await signing(with: keyring, takesManifest: tasks.takesManifest, refusesOlder: true) {
            run throws(SigningError) in try run.perform(tasks)
        }
    }

    /// Creates the first root metadata, and signs the manifest.
    func initialize(
        _ content: RootContent,
        with keyring: Keyring
    ) async throws(CommandFailure) -> SigningStateReport {
        try await signing(with: keyring) { run throws(SigningError) in
            try run.initialize(content)
        }
    }

    /// Creates the next root metadata, and signs the metadata that changes with it.
    func rotate(
        with keyring: Keyring,
        _ change: (inout RootContent) throws(SigningError) -> Void
    ) async throws(CommandFailure) -> SigningStateReport {
        try await signing(with: keyring) { run throws(SigningError) in try run.rotate(change) }
    }

    private func signing(
        with keyring: Keyring,
        takesManifest: Bool = true,
        refusesOlder: Bool = false,
        _ body: (SigningRun) throws(SigningError) -> SigningReport
    ) async throws(CommandFailure) -> SigningStateReport {
        // Existing metadata is renewed also if the manifest's file is missing or invalid by now.
        let isFirst = try !isPublished()
        if takesManifest || isFirst { _ = try read() }
        let (directory, component) = try location()
        let lock = try await lock(component, in: directory, timeout: .seconds(30))
        // The manifests of a directory share their metadata. The lock on a manifest is always taken first.
        let shared = try await self.lock("metadata", in: directory, timeout: .seconds(30))
        if takesManifest, refusesOlder { try refuseOlder(component, in: directory) }
        let files = RepositoryFiles(directory: directory, manifestName: component)
        let manifest = try takesManifest ? bytes() : renewedManifest(in: files)
        let report = try perform(body, with: keyring, on: manifest, in: files)
        _ = consume shared
        _ = consume lock
        return report
    }

    /// Refuses a manifest whose revision is lower than that of the published one.
    private func refuseOlder(
        _ component: FilePath.Component,
        in directory: Directory
    ) throws(CommandFailure) {
        let files = RepositoryFiles(directory: directory, manifestName: component)
        let published: [UInt8]?
        do throws(SigningError) {
            published = try files.publishedManifest()
        } catch {
            throw CommandFailure(error, manifest: name)
        }
        // A published copy that is not a valid manifest is replaced.
        guard let published, let earlier = try? ManifestDocument(json: published) else { return }
        let (before, now) = (earlier.manifest.revision, try read().manifest.revision)
        guard now < before else { return }
        throw CommandFailure(
            status: .manifestInvalid,
            message:
                "\(name.forDisplay()): the published manifest has revision \(before), and this one "
                + "has the older revision \(now)",
            hint: "to publish it nevertheless, set its 'revision' to \(before + 1)",
            retryAdvice: .never
        )
    }

    private func perform(
        _ body: (SigningRun) throws(SigningError) -> SigningReport,
        with keyring: Keyring,
        on manifest: [UInt8],
        in files: RepositoryFiles
    ) throws(CommandFailure) -> SigningStateReport {
        let run = SigningRun(
            files,
            // Signs the exact bytes on disk, since clients compare bytes.
            manifest: manifest,
            signers: keyring.signers,
            at: .now
        )
        do throws(SigningError) {
            return SigningStateReport(try body(run), of: name)
        } catch {
            throw CommandFailure(error, manifest: name)
        }
    }

    /// Returns the bytes of the manifest for a run that renews metadata; those of the published copy if the file is missing.
    private func renewedManifest(in files: RepositoryFiles) throws(CommandFailure) -> [UInt8] {
        guard !FileStatus.exists(files.directory.path.appending(files.manifestName)) else {
            return try bytes()
        }
        let published: [UInt8]?
        do throws(SigningError) {
            published = try files.publishedManifest()
        } catch {
            throw CommandFailure(error, manifest: name)
        }
        guard let published else { return try bytes() }
        return published
    }

    /// Refuses a manifest that is signed already.
    func checkNotSigned() throws(CommandFailure) {
        _ = try read()
        if try isSigned() {
            throw CommandFailure(
                .alreadyInitialized(path: try files().metadataPath),
                manifest: name
            )
        }
    }

    /// Returns whether there is root metadata for the manifest.
    func isSigned() throws(CommandFailure) -> Bool {
        let files = try files()
        do throws(SigningError) {
            return try files.exists()
        } catch {
            throw CommandFailure(error, manifest: name)
        }
    }

    /// Returns whether there is published root metadata for the manifest.
    private func isPublished() throws(CommandFailure) -> Bool {
        let files = try files()
        do throws(SigningError) {
            return try files.isPublished()
        } catch {
            throw CommandFailure(error, manifest: name)
        }
    }

    /// Returns the roles of the newest root metadata, or `nil` if there is none.
    func signingRoles() throws(CommandFailure) -> [SigningRole: RootContent.Role]? {
        let files = try files()
        do throws(SigningError) {
            return try files.rootContent()?.roles
        } catch {
            throw CommandFailure(error, manifest: name)
        }
    }

    /// Prints the report of a change, and signs the manifest if its metadata is signed; with JSON, the report has the failure to sign.
    ///
    /// - Returns: The exit status of the command.
    func conclude(
        _ report: some Encodable & CustomStringConvertible,
        signing keyring: Keyring,
        asJSON: Bool
    ) async throws(CommandFailure) -> ExitStatus {
        guard asJSON else {
            Console.print(change: report, asJSON: false)
            try await signAfterChange(with: keyring)
            return .success
        }
        do throws(CommandFailure) {
            try await signAfterChange(with: keyring)
        } catch {
            Console.print(report, failures: [error], asJSON: true)
            return error.status
        }
        Console.print(report, asJSON: true)
        return .success
    }

    /// Signs the manifest after a change; without a key, prints the command that signs it.
    private func signAfterChange(with keyring: Keyring) async throws(CommandFailure) {
        guard try isSigned() else { return }
        if keyring.signers.isEmpty {
            Console.note(
                """
                \(name.forDisplay()): the signed metadata does not name this manifest yet
                hint: stagepack sign \(CommandFailure.quoted(name)) --key KEYFILE
                """
            )
            return
        }
        var tasks = SigningTasks()
        tasks.takesManifest = true
        let state = try await sign(with: keyring, tasks)
        try state.refuseIfNotSigned(by: keyring, isForRoot: false, manifest: name)
        Console.note(state.description)
        state.printRemainingSteps()
    }

    private func files() throws(CommandFailure) -> RepositoryFiles {
        let (directory, component) = try location()
        return RepositoryFiles(directory: directory, manifestName: component)
    }
}

extension MetadataTime {
    /// The time of the system's clock.
    static var now: MetadataTime {
        MetadataTime(secondsSince1970: Int64(Date.now.timeIntervalSince1970))
    }
}
