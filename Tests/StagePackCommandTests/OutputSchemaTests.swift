import FoundationEssentials
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The output of commands with `--json`, compared member by member with `Manifests/output.schema.json`.
@Suite(.server, .directory)
struct OutputSchemaTests {
    private let schema = Result { try OutputSchemas() }

    /// The commands whose help has `--json` each have a shape.
    @Test func everyCommandHasAShape() throws {
        let schema = try schema.get()
        let folder = OutputSchemas.sources.appending("Tests/StagePackCommandTests/Golden")
        for entry in try Directory.open(folder).entries() {
            let text = String(decoding: try bytes(of: folder.appending(entry.name)), as: UTF8.self)
            guard text.contains("--json ") || text.contains("[--json]") else { continue }
            let name = entry.name.stem
            #expect(schema.names.contains(name), "\(name) has no shape")
        }
    }

    @Test func outputOfRunsAndReadersMatchesItsSchema() async throws {
        var world = try World()
        let missing = try SamplePack.small(try PackID("missing"), policy: .onDemand)
        try world.publish(
            try .small(.aurora),
            try .small(try PackID("oceans"), policy: .onDemand),
            missing
        )
        world.server.answer(missing.path, with: .status(404))
        try await check("plan", world)
        try await check("prefetch", world)
        try await check("fetch", ["oceans"], world)
        try await check("fetch", ["missing", "--attempts", "1"], world, status: 21)
        try await check("load", ["oceans"], world)
        try await check("path", ["oceans"], world)
        try await check("status", world)
        try await check("ls", ["--missing"], world)
        try await check("info", ["aurora"], world)
        try await check("info", ["missing"], world)
        try await check("du", world)
        try await check("why", world)
        try await check("verify", world)
        try await check("repair", world)
        let file = world.container.appending("packs/aurora").appending("spoiled.txt")
        try Directory.open(file.removingLastComponent()).write(
            [1],
            to: "spoiled.txt",
            durably: false
        )
        try await check("verify", world, status: 3)
        try await check("repair", world)
        try await check("pin", ["aurora"], world)
        try await check("pin", world)
        try await check("pin", ["--release", "aurora"], world)
        try await check("rollback", ["aurora"], world, status: nil)
        try await check("gc", ["--quota", "0"], world, status: 40)
        try await check("gc", ["--dry-run"], world)
        try await check("remove", ["aurora"], world)
        try await check("why", world)
        try await check("path", ["aurora"], world, status: 2, as: "error")
        try await check("plan", ["--nonsense"], world, status: 64, as: "error")
    }

    @Test func outputForPublishersMatchesItsSchema() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": [UInt8](repeating: 7, count: 40_000), "b": Array("b".utf8)])
        let first = try await publisher.package(version: 1, archive: true)
        try publisher.write(["b": Array("changed".utf8)])
        let second = try await publisher.package(version: 2, base: first, archive: true)
        let recipe = world.directory.path.appending("recipe.json").string
        try await check("diff", [first, second])
        try await check("delta", [second, "--base", first], status: nil)
        try await check("package", [recipe, "--evaluate"], as: "package-evaluation")
        try await check(
            "package",
            [recipe, "--indexed", "-o", publisher.store.string],
            as: "package-indexed"
        )
        let archive = world.directory.path.appending("levels.tar.zst").string
        try await check("package", [recipe, "-o", archive])
        let manifest = publisher.store.appending("manifest.json").string
        _ = try await world.program.run([
            "manifest", "create", "--application", "net.example", "-o", manifest,
        ])
        try await check(
            "manifest add",
            [manifest, second, "--pack-version", "1", "--recipe", recipe]
        )
        try await check("manifest set-policy", [manifest, "levels", "onDemand"])
        try await check("manifest lint", [manifest], status: nil)
        try await check("manifest remove", [manifest, "levels"])
        try await check("store gc", [publisher.store.string, "--dry-run"], status: nil)
        let key = world.directory.path.appending("key.pem").string
        try await check("keys generate", ["--unencrypted", key])
        try await check("keys show", [key])
        try await check("keys init", [manifest, "--key", key])
        try await check("sign", [manifest, "--key", key])
    }

    @Test func outputForPackagersMatchesItsSchema() async throws {
        let world = try World()
        let sample = OutputSchemas.sources.appending("Manifests/samples/registration-minimal.json")
        try await check("app validate", [sample.string], status: nil)
        try await check("app list", status: nil)
        try await check("version")
        try await check("doctor", ["--container", world.container.string], status: nil)
    }

    private func check(
        _ command: String,
        _ arguments: [String] = [],
        _ world: World? = nil,
        status: Int32? = 0,
        as name: String? = nil,
        at location: SourceLocation = #_sourceLocation
    ) async throws {
        let words = command.split(separator: " ").map(String.init)
        let program = world?.program ?? Program()
        let ending = try await program.run(
            words + arguments + (world?.source ?? []) + ["--json"]
        )
        if let status { #expect(ending.status == status, "\(ending)", sourceLocation: location) }
        let name = name ?? words.joined(separator: "-")
        let value = try JSONNode(json: Array(ending.output.utf8)).value
        let isError = value["schema"]?.string == "stagepack/error/1" && status == nil
        let faults = try schema.get().faults(of: value, as: isError ? "error" : name)
        #expect(faults.isEmpty, "\(ending.output)", sourceLocation: location)
    }

    private func check(
        _ command: String,
        _ world: World,
        status: Int32? = 0,
        at location: SourceLocation = #_sourceLocation
    ) async throws {
        try await check(command, [], world, status: status, at: location)
    }
}

/// The schema of the commands' output, and a validator for the keywords that it uses.
struct OutputSchemas {
    /// The directory of the repository.
    static let sources = FilePath(#filePath).removingLastComponent().removingLastComponent()
        .removingLastComponent()

    /// The definitions that do not list the members of the control protocol, which has a separate description.
    private static let open = ["Task", "tasks-add", "watch"]

    private let definitions: JSONTree

    init() throws {
        let path = Self.sources.appending("Manifests/output.schema.json")
        let schema = try JSONNode(json: try bytes(of: path)).value
        definitions = try #require(schema["$defs"])
    }

    var names: [String] { definitions.members.map(\.name) }

    /// Returns the differences between a document and the definition of the name.
    func faults(of document: JSONTree, as name: String) throws -> [String] {
        let definition = try #require(definitions[name], "there is no shape '\(name)'")
        return try faults(of: document, definition, "", isOpen: Self.open.contains(name))
    }

    private func faults(
        of value: JSONTree,
        _ schema: JSONTree,
        _ path: String,
        isOpen: Bool = false
    ) throws -> [String] {
        var found: [String] = []
        for keyword in schema.members {
            switch keyword.name {
            case "$ref":
                let name = String(try #require(keyword.value.string?.split(separator: "/").last))
                let definition = try #require(definitions[name])
                found += try faults(of: value, definition, path, isOpen: Self.open.contains(name))
            case "type":
                if value.typeName != keyword.value.string {
                    found.append("\(path): \(value.typeName)")
                }
            case "const":
                if value.text != keyword.value.text { found.append("\(path): \(value.text)") }
            case "enum":
                guard case .array(let values) = keyword.value else { throw NeverHappened() }
                if !values.contains(where: { $0.text == value.text }) {
                    found.append("\(path): \(value.text)")
                }
            case "minimum":
                if value.integer ?? 0 < keyword.value.integer ?? 0 {
                    found.append("\(path): too small")
                }
            case "format":
                if (try? InternetTime(value.string ?? "")) == nil {
                    found.append("\(path): no time")
                }
            case "required":
                guard case .array(let names) = keyword.value else { throw NeverHappened() }
                for name in names.compactMap(\.string) where value[name] == nil {
                    found.append("\(path)/\(name): missing")
                }
            case "properties":
                for member in value.members {
                    let location = "\(path)/\(member.name)"
                    if let definition = keyword.value[member.name] {
                        found += try faults(of: member.value, definition, location)
                    } else if !isOpen {
                        // Readers ignore unknown members, but the schema must contain each printed one.
                        found.append("\(location): unknown")
                    }
                }
            case "items":
                guard case .array(let elements) = value else { continue }
                for element in elements {
                    found += try faults(of: element, keyword.value, path + "[]")
                }
            case "description": break
            default: Issue.record("the validator does not know '\(keyword.name)'")
            }
        }
        return found
    }
}

extension JSONTree {
    /// The name of the type in JSON Schema.
    fileprivate var typeName: String {
        switch self {
        case .object: "object"
        case .array: "array"
        case .string: "string"
        case .boolean: "boolean"
        case .integer: "integer"
        case .null: "null"
        default: "number"
        }
    }
}
