import StageDigest
import StageModel
import StageTesting
import Testing

@Suite(.server, .directory)
struct FailureTests {
    static let header = #""manifestVersion": 1, "application": "net.example.wallpaper""#

    static let manifests: [FailureCase] = [
        .manifest(
            "no answer",
            .dropped,
            status: 10,
            """
            stagepack: warning: the manifest is not available: the request to \
            'SERVER/manifest.json' failed: connection closed by ADDRESS without a response; using \
            revision 1
            hint: check the network and the server, then run it again

            """
        ),
        .manifest(
            "no manifest",
            .status(404),
            status: 10,
            """
            stagepack: warning: the manifest is not available: 'SERVER/manifest.json' was \
            answered with status 404; using revision 1
            hint: check the URL of the manifest

            """
        ),
        .manifest(
            "a server in trouble",
            .status(503),
            status: 10,
            """
            stagepack: warning: the manifest is not available: 'SERVER/manifest.json' was \
            answered with status 503; using revision 1
            hint: run it again later

            """
        ),
        .manifest(
            "a captive portal",
            .portal,
            status: 23,
            """
            stagepack: warning: the manifest is not available: 'SERVER/manifest.json' was answered \
            with a web page: a login page intercepted the download, or the URL is wrong; using \
            revision 1
            hint: log in to the network with a web browser, or correct the URL, then run it again

            """
        ),
        .manifest(
            "a manifest cut short",
            text: "{",
            """
            stagepack: error: the manifest at 'SERVER/manifest.json' is not valid: not \
            JSON: line 1, column 2: expected a member's name, found the end
            hint: tell the publisher: the manifest is not valid

            """
        ),
        .manifest(
            "a manifest with a wrong member",
            text: #"{ \#(header), "revision": 9, "packs": [{ "id": 7 }] }"#,
            """
            stagepack: error: the manifest at 'SERVER/manifest.json' is not valid: \
            packs[0].id: expected a string, found 7
            hint: tell the publisher: the manifest is not valid

            """
        ),
        .manifest(
            "a manifest of a later version",
            text: #"{ "manifestVersion": 2, "packs": [] }"#,
            """
            stagepack: error: the manifest at 'SERVER/manifest.json' is not valid: format \
            version 2, expected 1
            hint: update stagepack

            """
        ),
        .manifest(
            "a manifest that went back",
            text: #"{ \#(header), "revision": 0, "packs": [] }"#,
            status: 12,
            """
            stagepack: error: the manifest at 'SERVER/manifest.json' is refused: it went \
            back from revision 1 to revision 0
            hint: tell the publisher: a manifest's revision must not decrease

            """
        ),
    ]

    static let transfers: [FailureCase] = [
        .archive(
            "no answer for the archive",
            .dropped,
            status: 20,
            """
            stagepack: error: pack 'aurora': the request to \
            'SERVER/packs/aurora-2.tar.zst' failed: connection closed by ADDRESS without a response
            hint: check the network and the server, then run it again

            """
        ),
        .archive(
            "an archive that ends early",
            .content(noise(999, seed: 1)),
            status: 22,
            """
            stagepack: error: pack 'aurora': expected 20217 bytes from \
            'SERVER/packs/aurora-2.tar.zst', found 999
            hint: tell the publisher: the file on the server differs from the one in the manifest

            """
        ),
        .archive(
            "no archive",
            .status(404),
            status: 21,
            """
            stagepack: error: pack 'aurora': 'SERVER/packs/aurora-2.tar.zst' was answered \
            with status 404
            hint: tell the publisher: the server does not have the file

            """
        ),
        .archive(
            "an archive that is forbidden",
            .status(403),
            status: 21,
            """
            stagepack: error: pack 'aurora': 'SERVER/packs/aurora-2.tar.zst' was answered \
            with status 403
            hint: pass credentials with --netrc-file or --token-file

            """
        ),
        .archive(
            "a portal in place of the archive",
            .portal,
            status: 23,
            """
            stagepack: error: pack 'aurora': 'SERVER/packs/aurora-2.tar.zst' was answered with a \
            web page: a login page intercepted the download, or the URL is wrong
            hint: log in to the network with a web browser, or correct the URL, then run it again

            """
        ),
        .archive(
            "a redirect to a portal",
            .redirect(to: "/login"),
            status: 23,
            """
            stagepack: error: pack 'aurora': a login page intercepted the download of \
            'SERVER/packs/aurora-2.tar.zst': 'SERVER/login' answered
            hint: log in to the network with a web browser, or correct the URL, then run it again

            """
        ),
        .pack(
            "a digest that is wrong",
            status: 22,
            """
            stagepack: error: pack 'aurora': the content from 'SERVER/packs/aurora-2.tar.zst' \
            is not the expected one: expected the SHA-256 digest DIGEST, found DIGEST
            hint: tell the publisher: the file on the server differs from the one in the manifest

            """
        ) { pack in
            pack.archive?.digest = Digest(of: [1])
        },
        .pack(
            "a size that is too small",
            status: 22,
            """
            stagepack: error: pack 'aurora': expected 100 bytes from \
            'SERVER/packs/aurora-2.tar.zst', found 20217
            hint: tell the publisher: the file on the server differs from the one in the manifest

            """
        ) { $0.archive?.size = ByteCount(100) },
        .pack(
            "a size that is too large",
            status: 22,
            """
            stagepack: error: pack 'aurora': expected 20218 bytes from \
            'SERVER/packs/aurora-2.tar.zst', found 20217
            hint: tell the publisher: the file on the server differs from the one in the manifest

            """
        ) { $0.archive?.size += ByteCount(1) },
        .pack(
            "a server that is not there",
            status: 20,
            """
            stagepack: error: pack 'aurora': the request to \
            'http://127.0.0.1:1/aurora-2.tar.zst' failed: connection refused by \
            127.0.0.1:1
            hint: check the network and the server, then run it again

            """
        ) { pack in
            pack.archive?.url = "http://127.0.0.1:1/aurora-2.tar.zst"
        },
    ]

    static let contents: [FailureCase] = [
        .hostile(
            "a name that leads outside",
            .init("../b", content: [2]),
            """
            stagepack: error: pack 'aurora': entry '../b' is not allowed: expected a path \
            without '.' and '..' components, found '../b'
            hint: tell the publisher to package the pack again

            """
        ),
        .hostile(
            "a link that leads outside",
            .init("b", .link, target: "/etc/passwd"),
            """
            stagepack: error: pack 'aurora': entry 'b' is not allowed: expected a link \
            with a relative target, found '/etc/passwd'
            hint: tell the publisher to package the pack again

            """
        ),
        .hostile(
            "a device",
            .init("b", .characterDevice),
            """
            stagepack: error: pack 'aurora': entry 'b' is not allowed: expected a file, a \
            directory or a link, found a character device
            hint: tell the publisher to package the pack again

            """
        ),
        .hostile(
            "a name that comes twice",
            .init("a", content: [2]),
            """
            stagepack: error: pack 'aurora': entry 'a' occurs twice
            hint: tell the publisher to package the pack again

            """
        ),
        .pack(
            "a file too few",
            status: 30,
            keepsDownload: true,
            """
            stagepack: error: pack 'aurora': the pack holds 3 files with 20019 bytes, \
            expected 4 files with 20019 bytes
            hint: tell the publisher: installedSize, fileCount and directoryCount must be exact

            """
        ) { $0.fileCount += 1 },
        .pack(
            "a file too many",
            status: 30,
            keepsDownload: true,
            """
            stagepack: error: pack 'aurora': archive has more than 2 entries, the first \
            too many 'images/one.png'
            hint: tell the publisher: installedSize, fileCount and directoryCount must be exact

            """
        ) { $0.fileCount -= 1 },
        .pack(
            "a directory too few",
            status: 30,
            keepsDownload: true,
            """
            stagepack: error: pack 'aurora': the pack holds 3 files with 20019 bytes and \
            2 directories, expected 3 files with 20019 bytes and 3 directories
            hint: tell the publisher: installedSize, fileCount and directoryCount must be exact

            """
        ) { $0.directoryCount = 3 },
        .pack(
            "a directory too many",
            status: 30,
            keepsDownload: true,
            """
            stagepack: error: pack 'aurora': archive has more than 1 entry, the first \
            too many 'images'
            hint: tell the publisher: installedSize, fileCount and directoryCount must be exact

            """
        ) { $0.directoryCount = 1 },
        .pack(
            "more bytes than declared",
            status: 30,
            keepsDownload: true,
            """
            stagepack: error: pack 'aurora': archive expands to more than 20018 bytes at \
            entry 'images/one.png'
            hint: tell the publisher: installedSize, fileCount and directoryCount must be exact

            """
        ) { $0.installedSize -= ByteCount(1) },
        .pack(
            "another format",
            status: 30,
            keepsDownload: true,
            """
            stagepack: error: pack 'aurora': not an archive in the format 'zip': the \
            central directory is missing
            hint: tell the publisher to package the pack again

            """
        ) { $0.archive?.format = .zip },
        .content(
            "an archive cut short by its publisher",
            """
            stagepack: error: pack 'aurora': not an archive in the format 'tar.zst': \
            Truncated zstd input
            hint: tell the publisher to package the pack again

            """
        ) {
            let whole = try SamplePack.small(.aurora, version: 2).archive
            return Array(whole.prefix(whole.count / 2))
        },
    ]

    static let requests: [FailureCase] = [
        FailureCase(
            testDescription: "a pack that no manifest offers",
            status: 13,
            error: """
                stagepack: error: the manifest has no pack 'borealis'
                hint: run 'stagepack plan --manifest SERVER/manifest.json --container \
                DIRECTORY/container' to see all packs

                """,
            arguments: ["fetch", "borealis"]
        ) { _ in },
        FailureCase(
            testDescription: "a manifest over plain HTTP",
            status: 12,
            error: """
                stagepack: error: the manifest at 'http://example.invalid/manifest.json' is \
                refused: plain HTTP, without a root of trust to verify it with
                hint: use a URL with https, or verify signed metadata: '--root FILE', or 'trust' of the registration

                """,
            manifest: "http://example.invalid/manifest.json"
        ) { _ in },
        FailureCase(
            testDescription: "a server for manifests that is not there",
            status: 10,
            error: """
                stagepack: error: the manifest is not available: the request to \
                'http://127.0.0.1:1/manifest.json' failed: connection refused by \
                127.0.0.1:1
                hint: check the network and the server, then run it again

                """,
            manifest: "http://127.0.0.1:1/manifest.json"
        ) { _ in },
        FailureCase(
            testDescription: "a manifest that is no URL",
            status: 64,
            error: """
                stagepack: error: --manifest: expected a URL or an existing file, found 'manifest'

                """,
            manifest: "manifest"
        ) { _ in },
        FailureCase(
            testDescription: "an older application than the manifest is for",
            status: 12,
            error: """
                stagepack: error: the manifest at 'SERVER/manifest.json' is refused: it \
                requires application version '>=2 <3', found '1.2'
                hint: update the application

                """,
            arguments: ["prefetch", "--application-version", "1.2"]
        ) { world in
            let text =
                #"{ \#(header), "revision": 9, "packs": [], "requires": "#
                + #"{ "applicationVersion": ">=2 <3" } }"#
            world.server.answer("/manifest.json", with: .content(Array(text.utf8)))
        },
    ]

    @Test(arguments: manifests + transfers + contents + requests)
    func aFailureIsReportedAndStagedPacksStay(_ failure: FailureCase) async throws {
        var world = try World()
        let first = try SamplePack.small(.aurora)
        try world.publish(first)
        try await world.succeed("prefetch", "--quiet")
        world.server.answer("/login", with: .portal)
        try failure.arrange(&world)

        let options = ["--quiet", "--progress", "none", "--attempts", "1"]
        let source = world.source(manifest: failure.manifest)
        let ending = try await world.program.run(failure.arguments + options + source)

        #expect(world.masked(ending.error) == failure.error)
        #expect(ending.status == failure.status)
        #expect(ending.output == "")
        #expect(try world.staged(.aurora) == StagedFiles(first))
        #expect(try world.names(in: "staging") == [])
        #expect(try world.names(in: "generations/aurora").count == 1)
        #expect(try world.names(in: "downloads").isEmpty != failure.keepsDownload)

        world.revision = 100
        let mended = try SamplePack.small(.aurora, version: 3)
        try world.publish(mended)
        try await world.succeed("prefetch", "--quiet")
        #expect(try world.staged(.aurora) == StagedFiles(mended))
    }
}
