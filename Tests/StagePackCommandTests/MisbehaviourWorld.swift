import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Three versions of an indexed pack on a server, which are made once for all tests.
struct IndexedContent: Sendable {
    /// One version of the pack: its manifest and its index.
    struct Version: Sendable {
        var manifest: [UInt8]
        /// The path of the index on the server.
        var index: String
        var files: StagedFiles
    }

    /// The objects of all versions, by their paths.
    private(set) var objects: [String: [UInt8]] = [:]
    private(set) var versions: [Version] = []
    /// The content of the file `b`, which is in a bundle with others.
    let file = noise(50_000, seed: 2)

    private static let shared = Shared()

    private actor Shared {
        private var task: Task<IndexedContent, any Error>?

        func content() async throws -> IndexedContent {
            let task = task ?? Task { try await IndexedContent(packaging: ()) }
            self.task = task
            return try await task.value
        }
    }

    /// Returns what the first caller packages, in the world of its test.
    static func packaged() async throws -> IndexedContent { try await shared.content() }

    private init(packaging: Void) async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        var large = noise(2_000_000, seed: 1)
        try publisher.write(["a": large, "b": file, "c": noise(50_000, seed: 3)])
        let first = try await publisher.package(version: 1)
        try add(first, 1, try publisher.files())
        large[1_000_000] ^= 1
        try publisher.write(["a": large])
        let second = try await publisher.package(version: 2, base: first)
        try add(second, 2, try publisher.files())
        // Near copies, of which a patch has one.
        try publisher.write(nearCopies(of: noise(200_000, seed: 5), count: 4))
        let third = try await publisher.package(version: 3, base: second, patches: true)
        try add(third, 3, try publisher.files())
        let store = world.directory.path.appending("store")
        for folder in ["b", "i", "d", "p"] {
            let path = store.appending(folder)
            for name in try Directory.open(path).entries().map(\.name) {
                objects["/\(folder)/\(name)"] = try bytes(of: path.appending(name))
            }
        }
    }

    private mutating func add(_ path: String, _ version: Int, _ files: StagedFiles) throws {
        let stored = try StoredIndex(at: FilePath(path))
        let pack = Pack(
            id: try PackID("levels"),
            version: version,
            policy: .onDemand,
            archive: nil,
            index: stored.reference,
            installedSize: stored.index.installedSize,
            fileCount: stored.index.fileCount
        )
        let manifest = Manifest(
            application: try ApplicationID("net.example.wallpaper"),
            revision: version,
            packs: [pack]
        )
        let index = "/\(stored.reference.url)"
        versions.append(Version(manifest: manifest.json(), index: index, files: files))
    }

    /// The paths of the objects of a resource.
    func paths(of resource: ServedResource) -> [String] {
        switch resource {
        case .manifest, .archive: []
        case .index: versions.prefix(1).map(\.index)
        case .bundle, .range: objects.keys.filter { $0.hasPrefix("/b/") }
        case .delta: objects.keys.filter { $0.hasPrefix("/d/") }
        case .patch: objects.keys.filter { $0.hasPrefix("/p/") }
        }
    }
}

/// A run of the program whose time and memory were measured.
struct MeasuredRun {
    var ending: Program.Ending
    var duration: Duration
    /// The peak memory of one of its processes, in bytes.
    var memory: Int
}

/// A world in which one resource of the server misbehaves.
struct MisbehaviourWorld {
    private(set) var world: World
    private let resource: ServedResource
    private let staged: StagedFiles
    /// The content that is staged before the run; `nil` if nothing is.
    private let present: StagedFiles?
    private let pack: PackID
    private let file: [UInt8]

    /// Publishes the packs with the resource, and lets the server misbehave for it.
    init(_ row: MisbehaviourRow) async throws {
        world = try World()
        resource = row.resource
        switch resource {
        case .manifest, .archive:
            let sample = try SamplePack.small(.aurora)
            let manifest = try world.manifest(of: [sample])
            try world.publish(sample)
            staged = StagedFiles(sample)
            present = nil
            pack = try .aurora
            file = []
            let isManifest = resource == .manifest
            let path = isManifest ? "/manifest.json" : sample.path
            misbehave(row, path, isManifest ? manifest : sample.archive)
        case .index, .bundle, .range, .delta, .patch:
            let content = try await IndexedContent.packaged()
            pack = try PackID("levels")
            file = content.file
            let last = resource == .patch ? 2 : resource == .delta ? 1 : 0
            staged = content.versions[last].files
            present = last > 0 ? content.versions[last - 1].files : nil
            for (path, bytes) in content.objects {
                world.server.answer(path, with: .content(bytes))
            }
            for version in content.versions[...last] {
                world.server.answer("/manifest.json", with: .content(version.manifest))
                if version.index != content.versions[last].index {
                    try await world.succeed("fetch", "levels", "--quiet")
                }
            }
            for path in content.paths(of: resource) {
                misbehave(row, path, try #require(content.objects[path]))
            }
        }
        world.server.answer("/login", with: .portal)
    }

    private func misbehave(_ row: MisbehaviourRow, _ path: String, _ content: [UInt8]) {
        let server = world.server
        let served = Served(resource: resource, path: path, content: content) { server.url($0) }
        server.answer(path, with: row.misbehaviour.answers(served))
    }

    private var command: [String] {
        switch resource {
        case .manifest, .archive: ["prefetch"]
        case .index, .bundle, .delta, .patch: ["fetch", "levels"]
        case .range: ["load", "levels", "--file", "b"]
        }
    }

    /// Runs a program, records its peak memory, and ends with its status.
    private static let meter = """
        import os, resource, sys
        status = os.spawnv(os.P_WAIT, sys.argv[2], sys.argv[2:])
        with open(sys.argv[1], "w") as notes:
            notes.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
        sys.exit(status)
        """

    /// Runs the command for the resource.
    func run(_ options: [String]) async throws -> MeasuredRun {
        let notes = world.directory.path.appending("memory")
        var program = world.program
        program.wrapper = [
            "/usr/bin/python3", "-I", "-S", "-c", Self.meter, notes.string,
            try Program.path.string,
        ]
        let start = ContinuousClock.now
        let ending = try await program.run(command + options + ["--quiet"] + world.source)
        return MeasuredRun(
            ending: ending,
            duration: .now - start,
            memory: try #require(Int(try text(of: notes))) << 10
        )
    }

    /// Checks the outcome of a run: the content, or a message that names the cause, the place and one thing
    /// to do.
    func expect(_ outcome: RunOutcome, of run: MeasuredRun, _ row: MisbehaviourRow) throws {
        let ending = run.ending
        let comment = Comment(rawValue: "\(row.testDescription): \(ending)")
        #expect(run.memory <= Program.memoryLimit, comment)
        switch outcome {
        case .right:
            // A warning says that another transfer was used.
            let isQuiet = ending.error == "" || resource == .patch || resource == .delta
            #expect(ending.status == 0 && isQuiet, comment)
            if resource == .range {
                let path = FilePath(String(ending.output.dropLast()))
                #expect(try bytes(of: path) == file, comment)
            } else {
                #expect(try world.staged(pack) == staged, comment)
            }
        case .fails(let failure, let words):
            #expect(ending.status == failure.status(for: resource), comment)
            #expect(ending.output == "" || resource != .range, comment)
            let text = ending.error
            #expect(text.contains(words), comment)
            #expect(text.contains("'http"), comment)
            #expect(text.contains("\nhint: "), comment)
            for word in ["libcurl", "Out of memory", "CURLE"] {
                #expect(!text.contains(word), comment)
            }
            #expect(text.utf8.count < 2000, comment)
            #expect(try world.staged(pack) == present, comment)
        }
    }
}
