import FoundationEssentials
import Logging
import StageContainer
import StageEngine
import StageExtension
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// The part of a run that an application's downloader extension has: it is asked what to download, and
/// told how each download ended.
///
/// Whatever it does, the run goes on: without an answer that counts, policies decide.
struct ExtensionRun: Sendable {
    let host: ExtensionHost
    let request: ExtensionRequest
    /// The URLs of the manifest, whose origin the extension may ask as the user may.
    let manifestURLs: [String]
    private let folder: TemporaryFolder

    /// What the extension asked for.
    struct Choice: Sendable {
        /// The packs, and whether each is essential.
        var packs: [PackID: Bool]
        /// Files that are no packs.
        var files: [ExtensionURLDownload]
        /// What is asked for of each pack, to tell the extension how it ended.
        fileprivate var downloads: [PackID: ExtensionDownload]
    }

    /// Prepares what an extension may see; `nil` where the registration names none.
    ///
    /// A dry run's extension gets an empty shared folder, so that it cannot change anything.
    init?(
        _ registration: Registration?,
        _ manifest: AcceptedManifest,
        _ planner: Planner,
        _ event: ContentRequest,
        _ container: Container?
    ) throws(CommandFailure) {
        guard let registration, let program = registration.downloaderExtension else { return nil }
        host = ExtensionHost(program: program, logger: Log.logger)
        manifestURLs = [manifest.record.url, manifest.record.resolvedURL]
        folder = try TemporaryFolder.make(in: container.map(\.extensionFolder))
        do throws(FileError) {
            let place = try Directory.open(folder.path)
            try place.write(
                Array(manifest.record.text.utf8),
                to: "manifest.json",
                durably: false
            )
            let shared =
                if let container { try container.makeSharedFolder() } else {
                    try place.makeDirectory(FilePath("shared")).path
                }
            request = Self.request(
                event,
                registration,
                manifest,
                planner,
                (folder.path.appending("manifest.json"), shared, folder.path.appending("scratch"))
            )
        } catch {
            folder.remove()
            throw CommandFailure(.file(error))
        }
    }

    private static func request(
        _ event: ContentRequest,
        _ registration: Registration,
        _ manifest: AcceptedManifest,
        _ planner: Planner,
        _ paths: (manifest: FilePath, shared: FilePath, scratch: FilePath)
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
        // What does not fit today is wanted nevertheless, and missed until it does.
        unrestricted.freeSpace = nil
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

    /// Removes what was made for the extension.
    func end() { folder.remove() }

    /// Asks the extension what to download.
    ///
    /// - Throws: ``CommandFailure`` that names the extension; policies decide then.
    func choose(_ manifest: Manifest) async throws(CommandFailure) -> Choice {
        do throws(ExtensionError) {
            return choice(try await host.downloads(for: request), manifest)
        } catch {
            throw CommandFailure(error)
        }
    }

    private func choice(_ downloads: [ExtensionDownload], _ manifest: Manifest) -> Choice {
        var choice = Choice(packs: [:], files: [], downloads: [:])
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

    /// Tells the extension how the packs it asked for ended.
    ///
    /// - Returns: what it could not be told.
    func tell(
        _ outcomes: [PackID: StagingOutcome],
        _ choice: Choice,
        _ container: Container
    ) async -> CommandFailure? {
        var problem: CommandFailure?
        for (id, download) in choice.downloads.sorted(by: { $0.key < $1.key }) {
            guard !Task.isCancelled else { break }
            do throws(ExtensionError) {
                switch outcomes[id] {
                case .staged, .alreadyStaged:
                    guard let content = container.contentOfStaged(id) else { continue }
                    try await host.finished(download, file: content, for: request)
                case .failed(.cancelled), nil:
                    continue
                case .failed(let error):
                    let failure = ExtensionFailure(
                        code: error.backgroundAssetsCode,
                        message: "\(error)"
                    )
                    // What it wants instead is asked for in the next run.
                    _ = try await host.failed(download, failure, for: request)
                }
            } catch {
                problem = problem ?? CommandFailure(error)
            }
        }
        return problem
    }
}

extension DownloadPolicy {
    /// Whether the first launch waits for packs of this policy.
    fileprivate var isEssential: Bool {
        if case .essential = self { true } else { false }
    }
}

extension Container {
    /// Where what an extension needs is put while it runs.
    fileprivate var extensionFolder: FilePath { root.path.appending(ContainerLayout.extensions) }

    /// Makes the folder that the group's applications and extensions share.
    fileprivate func makeSharedFolder() throws(FileError) -> FilePath {
        let name = FilePath(ContainerLayout.shared)
        // One that exists is what the applications have made of it.
        if let folder = try root.directory(name) { return folder.path }
        return try root.makeDirectory(name, exactly: .directory).path
    }

    /// The directory of the pack's files, if it is staged.
    fileprivate func contentOfStaged(_ id: PackID) -> FilePath? {
        // An extension that is not told of a pack finds it in the container all the same.
        guard let lease = try? reader.lease(id, marksUse: false) else { return nil }
        return lease.content
    }
}
