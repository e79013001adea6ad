import FoundationEssentials
import StageContainer
import StageDigest
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// A publisher's server, a container, and the program that uses them.
///
/// Suites that create one have the traits `.server` and `.directory`.
struct World {
    let server: TestServer
    let directory: Directory
    /// The program with its environment.
    var program = Program()
    /// The revision of the manifest that is published next.
    var revision = 1

    init() throws {
        server = TestServer.current
        directory = try TemporaryDirectory.required()
    }

    /// The container that the program is pointed at.
    var container: FilePath { directory.path.appending("container") }

    /// The URL of the manifest.
    var manifestURL: String { server.url("/manifest.json") }

    /// The options that name manifest and container.
    var source: [String] { source(manifest: nil) }

    /// Returns the options that name manifest and container; `nil` for the manifest of the server.
    func source(manifest: String?) -> [String] {
        ["--manifest", manifest ?? manifestURL, "--container", container.string]
    }

    /// The text with placeholders for parts that differ from run to run.
    func masked(_ text: String) -> String {
        text.replacing(server.baseURL, with: "SERVER")
            .replacing(String(server.baseURL.dropFirst("http://".count)), with: "ADDRESS")
            .replacing(directory.path.string, with: "DIRECTORY")
            .replacing(#/\.[0-9a-z]{8,}(\.tmp|/)/#) { ".MARK\($0.1)" }
            .replacing(#/content/\d+/#, with: "content/NUMBER")
            .replacing(
                #/digest [0-9a-f]{64}, found [0-9a-f]{64}/#,
                with: "digest DIGEST, found DIGEST"
            )
    }

    /// Serves the packs and their manifest, with the next revision; `change` modifies the responses for the archives.
    mutating func publish(
        _ packs: SamplePack...,
        changing change: (Answer) -> Answer = { $0 }
    ) throws {
        try publish(packs, changing: change)
    }

    /// Serves the packs and their manifest, with the next revision; `change` modifies the responses for the archives.
    mutating func publish(
        _ packs: [SamplePack],
        changing change: (Answer) -> Answer = { $0 }
    ) throws {
        server.answer("/manifest.json", with: .content(try manifest(of: packs)))
        revision += 1
        for pack in packs { server.answer(pack.path, with: change(.content(pack.archive))) }
    }

    /// The manifest of the packs, with the revision that is published next.
    func manifest(of packs: [SamplePack]) throws -> [UInt8] {
        Manifest(
            application: try ApplicationID("net.example.wallpaper"),
            revision: revision,
            packs: packs.map(\.pack)
        ).json()
    }

    /// Runs the program on the container: the command, the options for manifest and container, then the other arguments.
    func run(
        _ arguments: String...,
        body: @escaping @Sendable (Program.Running) async throws -> Void = { _ in }
    ) async throws -> Program.Ending {
        try await program.run(arguments + source, body: body)
    }

    /// Runs the program with `--json`, which has to succeed, and returns what it prints.
    func report<Report: Decodable>(_ arguments: [String]) async throws -> Report {
        let ending = try await program.run(arguments + ["--json"])
        #expect(ending.status == 0, "\(ending)")
        return try JSONDecoder().decode(Report.self, from: Data(ending.output.utf8))
    }

    /// Runs the program, which has to succeed, and returns its standard output.
    @discardableResult
    func succeed(
        _ arguments: String...,
        at location: SourceLocation = #_sourceLocation
    ) async throws -> String {
        let ending = try await program.run(arguments + source)
        #expect(ending.status == 0, "\(ending.error)", sourceLocation: location)
        return ending.output
    }

    /// The digests of the files of a pack as a reader sees them now; `nil` if it is not staged.
    func staged(_ id: PackID) throws -> StagedFiles? {
        guard let reader = try ContainerReader.open(container), let lease = try reader.lease(id)
        else { return nil }
        return try StagedFiles(lease.content)
    }

    /// The names in a directory of the container.
    func names(in name: String) throws -> [String] {
        guard let directory = try Directory.open(container).directory(FilePath(name)) else {
            return []
        }
        return try directory.entries().map(\.path.string).sorted()
    }
}

/// The files below a directory, by path, with their digests.
struct StagedFiles: Equatable {
    var digests: [String: Digest] = [:]

    init(_ pack: SamplePack) { digests = pack.digests }

    init(_ path: FilePath) throws { try walk(try Directory.open(path), "") }

    private mutating func walk(_ directory: Directory, _ prefix: String) throws {
        for entry in try directory.entries() {
            let path = prefix + entry.path.string
            if entry.kind == .directory {
                let below = try #require(try directory.directory(entry.path))
                try walk(below, path + "/")
            } else if let file = try directory.file(reading: entry.path) {
                digests[path] = try Digest(of: file)
            }
        }
    }
}

extension PackID {
    /// The id that most tests use.
    static var aurora: PackID {
        get throws { try PackID("aurora") }
    }
}

/// A condition that a test waits for did not occur.
struct NeverHappened: Error {}

/// The bytes in the part files of a directory, which need not exist yet.
func partSize(below path: FilePath) -> Int64 {
    // A file that is gone by now has no size.
    guard let directory = try? Directory.open(path), let entries = try? directory.entries() else {
        return 0
    }
    return entries.filter { $0.path.string.contains(".part.") }.reduce(0) { sum, entry in
        sum + ((try? directory.status(entry.path))??.size ?? 0)
    }
}
