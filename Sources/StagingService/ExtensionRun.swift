import Logging
import StageContainer
import StageEngine
import StageExtension
import StageModel
import StageSystem
import StageTransfer
import Synchronization
import SystemPackage

/// The downloader extension of an application during one run: chooses the downloads, and receives their
/// outcomes.
///
/// A failure of the extension does not end the run: without a valid answer, the policies of the manifest
/// decide.
struct ExtensionRun: Sendable {
    let host: ExtensionHost
    let request: ExtensionRequest
    /// The URLs of the manifest; the extension may send requests to their origin with the user's rights.
    let manifestURLs: [String]
    let logger: Logger
    private let folder: TemporaryFolder
    /// The extension's credentials by origin of the server; `nil` for an origin without a credential.
    private let credentials: Credentials

    private final class Credentials: Sendable {
        private let values = Mutex<[URLOrigin: BasicCredential?]>([:])

        func withLock<Value>(_ body: (inout [URLOrigin: BasicCredential?]) -> Value) -> Value {
            values.withLock { body(&$0) }
        }
    }

    /// The packs and files that an extension requested.
    struct Choice: Sendable {
        /// The packs; the value is `true` for essential ones.
        var packs: [PackID: Bool] = [:]
        /// Files that are not packs.
        var files: [ExtensionURLDownload] = []
        /// The download of each pack, for messages to the extension.
        fileprivate(set) var downloads: [PackID: ExtensionDownload] = [:]

        /// The identifiers of packs and files.
        var identifiers: Set<String> { Set(packs.keys.map(\.text) + files.map(\.identifier)) }

        /// Removes downloads that were tried before, and files beyond `limit` downloads.
        mutating func remove(_ identifiers: Set<String>, limit: Int) {
            packs = packs.filter { !identifiers.contains($0.key.text) }
            files.removeAll { identifiers.contains($0.identifier) }
            files.removeLast(max(0, files.count - max(0, limit - packs.count)))
            downloads = downloads.filter { packs[$0.key] != nil }
        }
    }

    /// Prepares the files that the extension may read; `nil` if the registration has no downloader extension.
    ///
    /// In a dry run the extension gets an empty shared folder, so that it cannot change the applications'
    /// files.
    init?(
        of registration: Registration?,
        manifest: AcceptedManifest,
        planner: Planner,
        event: ContentRequest,
        container: Container?,
        logger: Logger
    ) throws(StagingFailure) {
        guard let registration, let program = registration.downloaderExtension else { return nil }
        self.logger = logger
        credentials = Credentials()
        host = ExtensionHost(program: program, logger: logger)
        manifestURLs = [manifest.record.url, manifest.record.resolvedURL]
        folder = try TemporaryFolder.make(in: container.map(\.extensionFolder), logger: logger)
        do throws(FileError) {
            let directory = try Directory.open(folder.path)
            try directory.write(
                Array(manifest.record.text.utf8),
                to: "manifest.json",
                durably: false
            )
            let shared =
                if let container { try container.makeSharedFolder() } else {
                    try directory.makeDirectory(FilePath("shared")).path
                }
            request = Self.request(
                for: event,
                of: registration,
                manifest: manifest,
                planner: planner,
                paths: (
                    folder.path.appending("manifest.json"), shared, folder.path.appending("scratch")
                )
            )
        } catch {
            folder.remove()
            throw StagingFailure(ContainerError.file(error))
        }
    }

    private static func request(
        for event: ContentRequest,
        of registration: Registration,
        manifest: AcceptedManifest,
        planner: Planner,
        paths: (manifest: FilePath, shared: FilePath, scratch: FilePath)
    ) -> ExtensionRequest {
        var request = ExtensionRequest(
            event,
            application: registration.application,
            applicationVersion: registration.version,
            applicationGroup: registration.group,
            manifest: paths.manifest,
            container: paths.shared,
            scratch: paths.scratch
        )
        request.restrictedDownloadSizeRemaining =
            planner.budget?.remainingOtherDownloads.map { Int($0.rawValue) }
        request.restrictedEssentialDownloadSizeRemaining =
            planner.budget?.remainingEssentialDownloads.map { Int($0.rawValue) }
        var unrestricted = planner
        unrestricted.budget = nil
        // Packs that do not fit now are proposed as well, and stay pending until they fit.
        unrestricted.freeSpace = nil
        unrestricted.freeInodes = nil
        unrestricted.quota = nil
        let plan = unrestricted.plan(for: .event(event, essentialOnly: false))
        let proposed = Set(plan.packsToStage.map(\.id))
        request.packs = planner.manifest.packs.map { pack in
            ExtensionPack(
                pack,
                urls: pack.urls.prefix(1).flatMap {
                    planner.manifest.urls(for: $0, manifestURL: manifest.record.resolvedURL)
                },
                stagedVersion: planner.staged[pack.id]?.version,
                isProposed: proposed.contains(pack.id)
            )
        }
        return request
    }

    /// Deletes the files that were made for the extension.
    func end() { folder.remove() }

    /// Asks the extension for its downloads.
    ///
    /// - Throws: ``StagingFailure`` that names the extension; policies decide then.
    func choose(_ manifest: Manifest) async throws(StagingFailure) -> Choice {
        do throws(ExtensionError) {
            return choice(of: try await host.downloads(for: request), in: manifest)
        } catch {
            throw .downloaderExtension(error)
        }
    }

    /// Sorts the downloads of an answer into packs and files.
    func choice(of downloads: [ExtensionDownload], in manifest: Manifest) -> Choice {
        var choice = Choice()
        for download in downloads {
            switch download {
            case .pack(let id, let essential, let priority):
                let isEssential = essential ?? manifest[id]?.policy.isEssential ?? false
                choice.packs[id] = isEssential
                choice.downloads[id] = .pack(id, essential: isEssential, priority: priority)
            case .url(let file):
                choice.files.append(file)
            }
        }
        return choice
    }

    /// Reports to the extension that a pack is staged.
    ///
    /// - Throws: ``StagingFailure`` that names the extension. The pack stays staged.
    func reportStaged(
        _ download: ExtensionDownload,
        content: FilePath
    ) async throws(StagingFailure) {
        do throws(ExtensionError) {
            try await host.finished(download, file: content, for: request)
        } catch {
            throw .downloaderExtension(error)
        }
    }

    /// Reports a failed download to the extension, and returns its replacements.
    ///
    /// - Throws: ``StagingFailure`` that names the extension.
    func reportFailed(
        _ download: ExtensionDownload,
        with failure: StagingFailure
    ) async throws(StagingFailure) -> [ExtensionDownload] {
        do throws(ExtensionError) {
            let failure = ExtensionFailure(
                code: failure.backgroundAssetsCode,
                message: failure.shortDescription
            )
            return try await host.failed(download, with: failure, for: request)
        } catch {
            throw .downloaderExtension(error)
        }
    }

    /// Returns the extension's credential for a server that demands a user name and a password (RFC 7617), or
    /// `nil` if it has none.
    ///
    /// Asks the extension at most once a run for each server.
    ///
    /// - Parameters:
    ///   - download: A download of the server.
    ///   - server: The origin of the server.
    /// - Returns: The credential, for this origin alone.
    func credential(
        for download: ExtensionDownload,
        at server: URLOrigin
    ) async -> BasicCredential? {
        if let known = credentials.withLock({ $0[server] }) { return known }
        let credential = await askForCredential(for: download, at: server)
        credentials.withLock { $0[server] = .some(credential) }
        return credential
    }

    private func askForCredential(
        for download: ExtensionDownload,
        at server: URLOrigin
    ) async -> BasicCredential? {
        let challenge = ExtensionChallenge(method: "basic", host: server.host)
        do throws(ExtensionError) {
            let answer = try await host.answer(to: challenge, for: download, of: request)
            guard case .useCredential(let user, let password) = answer else { return nil }
            return BasicCredential(user: user, password: password)
        } catch {
            logger.warning(
                "The extension does not provide a credential",
                metadata: ["server.host": "\(server.host)", "error": "\(error)"]
            )
            return nil
        }
    }
}

extension DownloadPolicy {
    /// True if the first launch waits for packs of this policy.
    fileprivate var isEssential: Bool {
        if case .essential = self { true } else { false }
    }
}

extension Container {
    /// Directory of the temporary files of running extensions.
    fileprivate var extensionFolder: FilePath { root.path.appending(ContainerLayout.extensions) }

    /// Creates the folder that the group's applications and extensions share.
    fileprivate func makeSharedFolder() throws(FileError) -> FilePath {
        let name = FilePath(ContainerLayout.shared)
        // Leaves an existing folder as the applications have set it up.
        if let folder = try root.directory(name) { return folder.path }
        return try root.makeDirectory(name, exactly: .directory).path
    }

    /// Returns the directory of the pack's files, or `nil` if the pack is not staged.
    func contentOfStaged(_ id: PackID) -> FilePath? {
        // If the lease fails, the extension does not receive the path, but still finds the pack in the container.
        guard let lease = try? reader.lease(id, marksUse: false) else { return nil }
        return lease.content
    }
}
