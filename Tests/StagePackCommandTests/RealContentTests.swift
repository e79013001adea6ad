import FoundationEssentials
import StageDigest
import StageModel
import StagePack
import StageSystem
import StageTesting
import SystemPackage
import Testing
import WallpaperStore

/// Content that Debian packages hold, served by nginx.
@Suite(.largeDirectory, .debianPackages)
struct RealContentTests {
    /// Packages by their special feature.
    enum Content: String, CaseIterable {
        /// Large images.
        case images = "gnome-backgrounds"
        /// A game's images, sounds and levels: thousands of files.
        case game = "pingus-data"
        /// More symbolic links than files.
        case icons = "breeze-icon-theme"
        /// Executable files.
        case programs = "zip"
    }

    /// The script of an archive format has failed.
    private struct NoArchive: Error {}

    /// The formats in which the same tree is packed, and the script for each: it runs in the tree and writes to `$1`.
    private static let formats: [(format: ArchiveFormat, name: String, script: String)] = [
        (.tarZstandard, "tar.zst", #"tar -c . | zstd -q -1 -o "$1""#),
        (.tarGzip, "tar.gz", #"tar -c . | gzip -1 >"$1""#),
        (.tarXZ, "tar.xz", #"tar -c . | xz -0 -T 2 >"$1""#),
        (.zip, "zip", #""$2" -q -1 -r -y "$1" ."#),
    ]

    /// The properties that must be equal in two trees, a line for each name, printed by other programs.
    private func listing(of path: FilePath) async throws -> [Substring] {
        let script = """
            set -e
            cd "$1"
            find . -type d -printf 'directory %p\\n'
            find . -type l -printf 'link %p to %l\\n'
            find . -type f -perm /111 -printf 'executable %p\\n'
            find . -type f -printf 'size %s of %p\\n'
            find . -type f -print0 | xargs -0 sha256sum
            find . ! -type d ! -type l ! -type f -printf 'neither %p\\n'
            """
        return try await shell(script, path.string).split(separator: "\n").sorted()
    }

    /// A pack of an archive in a directory.
    private func pack(
        _ name: FilePath.Component,
        in directory: Directory,
        _ format: ArchiveFormat,
        _ policy: DownloadPolicy,
        holding listing: [Substring]
    ) throws -> Pack {
        guard let file = try directory.file(reading: FilePath(name)) else { throw NoArchive() }
        let sizes = listing.filter { $0.hasPrefix("size ") }
        return Pack(
            id: try PackID(name.string),
            version: 1,
            policy: policy,
            archive: PackArchive(
                url: name.string,
                format: format,
                size: ByteCount(try file.status().size),
                digest: try Digest(of: file)
            ),
            installedSize: ByteCount(
                try sizes.reduce(0) { $0 + (try #require(Int64($1.split(separator: " ")[1]))) }
            ),
            fileCount: sizes.count + listing.count { $0.hasPrefix("link ") }
        )
    }

    @Test(arguments: Content.allCases)
    func contentOfDebianIsStagedByteForByteFromNginx(_ content: Content) async throws {
        let directory = try TemporaryDirectory.required().path
        let tools = directory.appending("tools")
        let (tree, served) = (directory.appending("tree"), directory.appending("served"))
        try await DebianPackage.unpack("zip", into: tools)
        try await DebianPackage.unpack(content.rawValue, into: tree)
        let expected = try await listing(of: tree)
        switch content {
        case .images: break
        case .game: #expect(expected.count { $0.hasPrefix("size ") } > 1000)
        case .icons: #expect(expected.count { $0.hasPrefix("link ") } > 1000)
        case .programs: #expect(expected.count { $0.hasPrefix("executable ") } > 1)
        }
        let folder = try Directory.make(served)
        var packs: [Pack] = []
        for (index, (format, name, script)) in Self.formats.enumerated() {
            let name = try #require(FilePath.Component("content.\(name)"))
            let zip = tools.appending("usr/bin/zip").string
            let archive = served.appending(name).string
            try await shell(#"set -e; cd "$3"; \#(script)"#, archive, zip, tree.string)
            let policy: DownloadPolicy =
                index % 2 == 0 ? .essential([.firstInstallation]) : .onDemand
            packs.append(try pack(name, in: folder, format, policy, holding: expected))
        }
        let manifest = Manifest(
            application: try ApplicationID("net.example.wallpaper"),
            revision: 1,
            packs: packs
        )
        try folder.write(manifest.json(), to: "manifest.json", durably: false)

        try await Nginx.serving(served, below: directory) { nginx in
            let container = directory.appending("container")
            let url = nginx.baseURL + "manifest.json"
            let ending = try await Program().run(
                [
                    "prefetch", "--essential", "--quiet", "--manifest", url,
                    "--container", container.string,
                ]
            )
            #expect(ending == Program.Ending(status: 0, output: "", error: ""))
            let fetcher = CommandFetcher(source: .manifest(url: url), command: try Program.path)
            let store = PackStore(containers: [container], fetcher: fetcher)
            for pack in packs {
                if case .essential = pack.policy {
                    #expect(try store.localURL(for: pack.id.text) != nil)
                } else {
                    #expect(try store.localURL(for: pack.id.text) == nil)
                }
                let folder = try await store.loadPack(pack.id.text)
                #expect(try await listing(of: FilePath(folder.path)) == expected, "\(pack.id)")
            }
        }
        // There are more names than the trait removes quickly.
        try await shell(#"rm -rf -- "$1"/*"#, directory.string)
    }
}
