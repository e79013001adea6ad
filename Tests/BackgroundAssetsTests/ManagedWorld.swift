import BackgroundAssets
import StageDigest
import StageModel
import StagePack
import StageSystem
import StageTesting
import Testing

/// A publisher's server, a container, and managers of an application, which download with the `stagepack`
/// program that the package builds.
///
/// Suites that create one have the traits `.server` and `.directory`.
struct ManagedWorld {
    let server: TestServer
    let container: FilePath
    private var revision = 1

    init() throws {
        server = TestServer.current
        container = try TemporaryDirectory.required().path.appending("container")
    }

    /// Serves packs and their manifest, with the next revision.
    mutating func publish(_ packs: ManagedPack...) throws {
        let manifest = Manifest(
            application: try ApplicationID("net.example.wallpaper"),
            revision: revision,
            packs: packs.map(\.pack)
        )
        server.answer("/manifest.json", with: .content(manifest.json()))
        revision += 1
        for pack in packs { server.answer(pack.path, with: .content(pack.archive)) }
    }

    /// Stops serving the manifest.
    func goOffline() { server.answer("/manifest.json", with: .status(503)) }

    /// Returns a fetcher with the options of the program, and `--attempts 1`.
    func fetcher() throws -> CommandFetcher {
        let program = try BuiltProgram.path(of: "stagepack")
        return CommandFetcher(
            source: .manifest(url: server.url("/manifest.json")),
            command: program,
            arguments: ["--attempts", "1"]
        )
    }

    /// Returns the application's configuration.
    func configuration() throws -> AssetPackManager.Configuration {
        let url = try #require(URL(string: server.url("/manifest.json")))
        var configuration = AssetPackManager.Configuration(
            applicationGroup: "net.example",
            manifestURL: url
        )
        configuration.containers = [container]
        configuration.fetcher = try fetcher()
        return configuration
    }

    /// Returns a manager as another process of the application would have it.
    func manager(
        _ change: (inout AssetPackManager.Configuration) throws -> Void = { _ in }
    ) throws -> AssetPackManager {
        var configuration = try configuration()
        try change(&configuration)
        return AssetPackManager(configuration: configuration, environment: [:])
    }

    /// Returns a manager that has made the packs available.
    func manager(with id: String, _ others: String...) async throws -> AssetPackManager {
        let manager = try manager()
        for id in [id] + others {
            try await manager.ensureLocalAvailability(of: manager.assetPack(withID: id))
        }
        return manager
    }
}

/// A pack created in code: the archive of its files, and its entry in a manifest.
struct ManagedPack {
    var pack: Pack
    let archive: [UInt8]

    /// The path of the archive on the server.
    var path: String { "/\(pack.archive?.url ?? "")" }

    init(_ id: String, version: Int = 1, files: [String: [UInt8]]) throws {
        var builder = TarBuilder()
        for (name, content) in files.sorted(by: { $0.key < $1.key }) {
            builder.add(TarBuilder.Entry(name, content: content))
        }
        builder.finish()
        archive = builder.bytes
        pack = Pack(
            id: try PackID(id),
            version: version,
            policy: .onDemand,
            archive: PackArchive(
                url: "packs/\(id)-\(version).tar",
                format: .tar,
                size: ByteCount(archive.count),
                digest: Digest(of: archive)
            ),
            installedSize: files.values.reduce(.zero) { $0 + ByteCount($1.count) },
            fileCount: files.count
        )
    }

    /// Creates a pack of one file, which contains its version, and of bytes that take a while to send.
    init(_ id: String, version: Int = 1, byteCount: Int = 0) throws {
        var files = ["\(id)/version.txt": Array("\(version)".utf8)]
        if byteCount > 0 { files["\(id)/noise"] = .init(repeating: 7, count: byteCount) }
        try self.init(id, version: version, files: files)
    }
}

/// Records a sequence of updates.
actor UpdateLog {
    private(set) var names: [String] = []
    private(set) var hasEnded = false

    /// Records all updates; passes each progress to `body`.
    func record(
        _ updates: some AsyncSequence<AssetPackManager.DownloadStatusUpdate, Never> & Sendable,
        _ body: (Progress) -> Void = { _ in }
    ) async {
        for await update in updates {
            switch update {
            case .began(let pack): names.append("began \(pack.id)")
            case .paused(let pack): names.append("paused \(pack.id)")
            case .downloading(let pack, let progress):
                names.append("downloading \(pack.id)")
                body(progress)
            case .finished(let pack): names.append("finished \(pack.id)")
            case .failed(let pack, let error):
                let isCancelled = error is CancellationError
                names.append("\(isCancelled ? "cancelled" : "failed") \(pack.id)")
            }
        }
        hasEnded = true
    }

    /// The names, without consecutive duplicates.
    var phases: [String] {
        names.reduce(into: []) { if $0.last != $1 { $0.append($1) } }
    }
}
