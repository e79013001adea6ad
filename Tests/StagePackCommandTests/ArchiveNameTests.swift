import Glibc
import StageModel
import StageSystem
import StageTesting
import Subprocess
import SystemPackage
import Testing

/// Names from the publisher's tree to the staged pack, compared by their bytes.
@Suite(.server, .directory)
struct ArchiveNameTests {
    private static let composed = "caf\u{E9}"
    private static let decomposed = "cafe\u{301}"

    private let directory: Directory
    private let program: Program

    init() throws {
        directory = try TemporaryDirectory.required()
        // Sources are relative to the current directory.
        program = try Program(in: directory)
        let tree = try directory.makeDirectory("tree")
        for name in [Self.composed, Self.decomposed] {
            let component = try #require(FilePath.Component(name))
            try tree.write(Array(name.utf8), to: component, durably: false)
            try tree.createLink(FilePath("link-\(name)"), to: "d-\(name)/../\(name)")
            let below = try tree.makeDirectory(FilePath("d-\(name)"))
            try below.write(Array(name.utf8), to: component, durably: false)
        }
        let recipe = """
            { "assetPackID": "aurora", "fileSelectors": [ {"directory": "tree"} ],
              "downloadPolicy": { "essential": { "installationEventTypes": ["firstInstallation"] } } }
            """
        try directory.write(Array(recipe.utf8), to: "recipe.json", durably: false)
    }

    /// The entries below a directory: paths, and targets of links or contents of files, as bytes.
    private func entries(of directory: Directory, prefix: String = "") throws -> Set<[UInt8]> {
        var found: Set<[UInt8]> = []
        for entry in try directory.entries() {
            let path = prefix + entry.path.string
            let name = entry.path
            switch entry.kind {
            case .directory:
                found.insert(Array("\(path)/".utf8))
                let below = try #require(try directory.directory(name))
                found.formUnion(try entries(of: below, prefix: path + "/"))
            case .link:
                let target = try #require(try directory.link(entry.name))
                found.insert(Array("\(path) -> \(target)".utf8))
            default:
                let content = try #require(try directory.file(reading: name)?.readAll(limit: 99))
                found.insert(Array("\(path): ".utf8) + content)
            }
        }
        return found
    }

    private func expectTree(stagedFrom file: String) async throws {
        let create = [
            "manifest", "create", "--application", "net.example.app", "-o", "manifest.json",
        ]
        #expect(try await program.run(create).status == 0)
        let added = try await program.run([
            "manifest", "add", "manifest.json", file, "--recipe", "recipe.json",
            "--pack-version", "1",
        ])
        try #require(added.status == 0, "\(added.error)")
        let server = TestServer.current
        for name in ["manifest.json", file] {
            let content = try bytes(of: directory.path.appending(name))
            server.answer("/\(name)", with: .content(content))
        }
        let location = directory.path.appending("container").string
        let staged = try await program.run([
            "prefetch", "--manifest", server.url("/manifest.json"), "--container", location,
        ])
        try #require(staged.status == 0, "\(staged.error)")
        let path = try await program.run(["path", "aurora", "--container", location])
        let content = try Directory.open(FilePath(String(path.output.dropLast())))
        let tree = try #require(try directory.directory("tree"))
        let expected = try entries(of: tree)
        #expect(expected.count == 8)
        // `package` keeps the directory that the recipe selects; the other programs archive its content.
        let found = try entries(of: try content.directory("tree") ?? content)
        #expect(found == expected)
        let verified = try await program.run(["verify", "--container", location])
        #expect(verified.status == 0, "\(verified.error)")
    }

    @Test(arguments: ["tar.zst", "tar.gz"])
    func aPackagedTreeKeepsItsNames(format: String) async throws {
        let file = "aurora.\(format)"
        let made = try await program.run(["package", "recipe.json", "-o", file])
        try #require(made.status == 0, "\(made.error)")
        try await expectTree(stagedFrom: file)
    }

    /// Only a URL has a query or a fragment.
    @Test(arguments: ["a#b.tar.gz", "a?b.tar.gz"])
    func thePathOfAnArchiveEndsWithTheEndingOfItsFormat(file: String) async throws {
        let made = try await program.run(["package", "recipe.json", "-o", file])
        #expect(made.status == 0, "\(made.error)")
        // The magic number of gzip.
        #expect(try bytes(of: directory.path.appending(file)).prefix(2) == [0x1F, 0x8B])
        let create = [
            "manifest", "create", "--application", "net.example.app", "-o", "manifest.json",
        ]
        #expect(try await program.run(create).status == 0)
        let added = try await program.run([
            "manifest", "add", "manifest.json", file, "--recipe", "recipe.json",
            "--pack-version", "1",
        ])
        #expect(added.status == 0, "\(added.error)")
    }

    /// Commands of a shell that archive the current directory: the archive's extension and the command.
    private static let archivers: [(String, String)] = [
        ("tar.zst", "tar --format=posix --zstd -cf \"$1\" *"),
        ("tar", "tar --format=gnu -cf \"$1\" *"),
        (
            "tar.gz",
            #"""
            python3 -c '
            import sys, tarfile
            with tarfile.open(sys.argv[1], "w:gz", format=tarfile.PAX_FORMAT) as archive:
                for name in sys.argv[2:]: archive.add(name)
            ' "$1" *
            """#
        ),
        (
            "zip",
            #"""
            python3 -c '
            import os, stat, sys, zipfile
            with zipfile.ZipFile(sys.argv[1], "w") as archive:
                for name in sys.argv[2:]:
                    if os.path.islink(name):
                        entry = zipfile.ZipInfo(name)
                        entry.create_system = 3
                        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
                        archive.writestr(entry, os.readlink(name))
                    elif os.path.isdir(name):
                        for below in os.listdir(name): archive.write(os.path.join(name, below))
                    else: archive.write(name)
            ' "$1" *
            """#
        ),
    ]

    @Test(arguments: archivers)
    func anArchiveOfAnotherProgramKeepsItsNames(suffix: String, command: String) async throws {
        let file = "aurora.\(suffix)"
        let result = try await Subprocess.run(
            .path("/bin/sh"),
            arguments: [
                "-ec", "export LC_ALL=C.UTF-8; cd \"$0\"\n\(command)",
                directory.path.appending("tree").string, directory.path.appending(file).string,
            ],
            output: .discarded,
            error: .string(limit: 1 << 16)
        )
        try #require(result.terminationStatus == .exited(0), "\(result.standardError)")
        try await expectTree(stagedFrom: file)
    }
}
