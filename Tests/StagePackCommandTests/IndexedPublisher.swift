import FoundationEssentials
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// A tree, a recipe and a store of an indexed pack that the test's server serves.
struct IndexedPublisher {
    let world: World
    /// The source tree of the pack.
    let tree: FilePath
    let store: FilePath
    private let recipe: FilePath.Component = "recipe.json"

    init(_ world: World) throws {
        self.world = world
        tree = world.directory.path.appending("tree")
        store = world.directory.path.appending("store")
        let text = #"""
            {
              // The members that Apple's tool reads.
              "assetPackID": "levels",
              "downloadPolicy": {"onDemand": {}},
              "fileSelectors": [{"directory": "."}],
              "sourceRoot": "\#(tree)"
            }
            """#
        try world.directory.write(Array(text.utf8), to: recipe, durably: false)
    }

    /// Writes files in place of the existing ones.
    func write(_ files: [String: [UInt8]]) throws {
        for (path, bytes) in files {
            let location = FilePath("\(tree)/\(path)")
            let name = try #require(location.lastComponent)
            let parent = try Directory.make(location.removingLastComponent())
            try parent.write(bytes, to: name, durably: false)
        }
    }

    /// Returns the files of the tree.
    func files() throws -> StagedFiles { try StagedFiles(tree) }

    /// Packages the tree and publishes it; returns the path of its index.
    func package(
        version: Int,
        base: String? = nil,
        older: [String] = [],
        patches: Bool = false,
        archive: Bool = false
    ) async throws -> String {
        let path = world.directory.path.appending(recipe).string
        let arguments = [
            "package", path, "--indexed", "--level", "3", "--json", "-o", store.string,
        ]
        let bases = [base].compactMap(\.self) + older
        let options =
            bases.flatMap { ["--base", $0] } + (archive ? [] : ["--no-archive"])
            + (bases.isEmpty || patches ? [] : ["--no-patches"])
        let ending = try await world.program.run(arguments + options)
        #expect(ending.status == 0, "\(ending)")
        struct Report: Decodable { var file: String }
        let report = try JSONDecoder().decode(Report.self, from: Data(ending.output.utf8))
        try publish(report.file, version: version)
        return report.file
    }

    /// Serves the store, and a manifest that offers an index from it; `change` modifies the responses for files of the store.
    func publish(
        _ index: String,
        version: Int,
        changing change: (Answer) -> Answer = { $0 }
    ) throws {
        for folder in ["a", "b", "d", "i", "p"] as [FilePath.Component] {
            let path = store.appending(folder)
            guard FileStatus.exists(path) else { continue }
            for name in try Directory.open(path).entries().map(\.name) {
                let answer = change(.content(try bytes(of: path.appending(name))))
                world.server.answer("/\(folder)/\(name)", with: answer)
            }
        }
        let manifest = try manifest(of: index, version: version)
        world.server.answer("/manifest.json", with: .content(manifest))
    }

    /// A manifest that offers an index of the store.
    func manifest(of index: String, version: Int) throws -> [UInt8] {
        let stored = try StoredIndex(at: FilePath(index))
        let pack = Pack(
            id: try PackID("levels"),
            version: version,
            policy: .onDemand,
            archive: stored.archive,
            index: stored.reference,
            installedSize: stored.index.installedSize,
            fileCount: stored.index.fileCount
        )
        return Manifest(
            application: try ApplicationID("net.example.wallpaper"),
            revision: version,
            packs: [pack]
        ).json()
    }

    /// Makes the server send changed responses for bundles.
    func answerForBundles(_ change: ([UInt8]) -> Answer) throws {
        let path = store.appending("b")
        for name in try Directory.open(path).entries().map(\.name) {
            world.server.answer("/b/\(name)", with: change(try bytes(of: path.appending(name))))
        }
    }

    /// The bytes of bundles, delta sets, archives and patches that were sent.
    var bytesSent: Int { bytesSent(of: ["a", "b", "d", "p"]) }

    /// The bytes of objects of some folders that were sent.
    func bytesSent(of folders: [String]) -> Int {
        folders.reduce(0) { sum, folder in
            let names = (try? Directory.open(store.appending(folder)).entries()) ?? []
            return names.reduce(sum) {
                $0 + world.server.counts(for: "/\(folder)/\($1.name)").bytes
            }
        }
    }
}
