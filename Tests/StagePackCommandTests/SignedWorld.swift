import Glibc
import StageContainer
import StageDigest
import StageModel
import StageSystem
import StageTesting
import StageTrust
import SystemPackage
import Testing

/// An application that is registered with a root of trust, and the repository of its manifest.
struct SignedWorld {
    var installed: Installed
    var repository: TestRepository
    /// The first component of the repository's paths on the server.
    var folder = "/signed"

    /// Registers the application; nothing is published yet.
    init() async throws {
        installed = try await Installed()
        repository = try TestRepository(expiry: Self.now + .days(30))
        try register(at: [folder])
    }

    /// The time of the machine.
    static var now: MetadataTime { MetadataTime(secondsSince1970: Int64(time(nil))) }

    var world: World { installed.world }
    var server: TestServer { world.server }

    /// The container's directory of the application's metadata.
    var metadata: FilePath { installed.container.appending("trust/net.example.wallpaper") }

    /// Registers the application with the manifests in these folders of the server, and the first root of
    /// the repository.
    mutating func register(at folders: [String]) throws {
        installed.registration.manifestURLs = folders.map { folder in
            (folder.contains("://") ? folder : server.url(folder)) + "/manifest.json"
        }
        try trust(repository.firstRoot)
    }

    /// Installs a root beside the registration.
    mutating func trust(_ root: [UInt8]) throws {
        installed.registration.trust = .root(path: "net.example.wallpaper.root")
        try installed.write(root, to: "net.example.wallpaper.root")
        try installed.install()
    }

    /// Signs a manifest of the packs, one revision after the one before, and serves everything.
    mutating func publish(_ packs: SamplePack...) throws {
        try sign(packs)
        serve(packs)
    }

    /// Signs a manifest of the packs, one revision after the one before.
    mutating func sign(_ packs: [SamplePack]) throws {
        let manifest = try world.manifest(of: packs)
        installed.world.revision += 1
        repository.contents["targets"] = ["manifest.json": manifest]
        try repository.publish([.targets, .snapshot, .timestamp])
    }

    /// The path of the manifest on the server, below a folder.
    var manifestPath: String {
        let content = repository.contents["targets"]?["manifest.json"] ?? []
        return "/\(Digest(of: content)).manifest.json"
    }

    /// Serves the repository and packs in a folder.
    func serve(_ packs: [SamplePack] = [], in other: String? = nil) {
        let folder = other ?? folder
        for (path, bytes) in repository.files {
            server.answer("\(folder)/metadata/\(path)", with: .content(bytes))
        }
        for content in repository.contents["targets"]?.values ?? [:].values {
            server.answer(folder + manifestPath, with: .content(content))
        }
        for pack in packs { server.answer(folder + pack.path, with: .content(pack.archive)) }
    }

    /// Runs the program for the application.
    func run(_ arguments: String...) async throws -> Program.Ending {
        try await world.program.run(arguments + ["--app", "net.example.wallpaper"])
    }

    /// Runs the program, which must refuse the manifest as untrusted.
    func refuse(
        _ reason: String,
        at location: SourceLocation = #_sourceLocation
    ) async throws {
        let before = try installed.staged()
        let ending = try await run("prefetch", "--attempts", "1")
        #expect(ending.status == 17, "\(ending)", sourceLocation: location)
        #expect(ending.error.contains(reason), "\(ending.error)", sourceLocation: location)
        #expect(try installed.staged() == before, sourceLocation: location)
    }

    /// Runs the program, which must stage the offered packs.
    func succeed(
        at location: SourceLocation = #_sourceLocation
    ) async throws {
        let ending = try await run("prefetch", "--attempts", "1")
        #expect(ending.status == 0, "\(ending)", sourceLocation: location)
    }

    /// The requests after the first `count`, without the common part of their paths.
    func requests(since count: Int) -> [String] {
        server.requests.dropFirst(count).map { $0.target.replacing(folder + "/", with: "") }
    }
}
