import StageModel
import StagePublish
import Testing

@Suite struct ManifestDocumentTests {
    private func pack(_ id: String, _ version: Int, digit: String = "a") throws -> Pack {
        var pack = Pack(
            id: try PackID(id),
            version: version,
            policy: .essential([.firstInstallation, .subsequentUpdate]),
            archive: PackArchive(
                url: "packs/\(id)-\(version).tar.zst",
                format: .tarZstandard,
                size: ByteCount(10),
                digest: try Digest(hexadecimal: String(repeating: digit, count: 64))
            ),
            installedSize: ByteCount(20),
            fileCount: 2
        )
        pack.userInfo = #"{"title":"Ü"}"#
        return pack
    }

    private func empty() throws -> ManifestDocument {
        try ManifestDocument(
            application: try ApplicationID("net.example.app"),
            baseURLs: ["https://cdn.example.org/a/"]
        )
    }

    private func text(_ document: ManifestDocument) -> String {
        String(decoding: document.json(), as: UTF8.self)
    }

    @Test func aManifestBeginsAsPeopleReadIt() throws {
        #expect(
            text(try empty()) == """
                {
                  "manifestVersion": 1,
                  "application": "net.example.app",
                  "revision": 1,
                  "baseURLs": ["https://cdn.example.org/a/"],
                  "packs": []
                }

                """
        )
        #expect(throws: ManifestError.self) {
            try ManifestDocument(application: try ApplicationID("a"), baseURLs: ["cdn"])
        }
    }

    @Test func anAddedPackIsTheOneThatIsRead() throws {
        var document = try empty()
        #expect(try document.add(try pack("aurora", 1)))
        #expect(try document.add(try pack("borealis", 3, digit: "b"), priority: 7))
        let manifest = try Manifest(json: document.json())
        #expect(manifest == document.manifest)
        #expect(manifest.revision == 3)
        var second = try pack("borealis", 3, digit: "b")
        second.priority = 7
        #expect(manifest.packs == [try pack("aurora", 1), second])
    }

    /// Both forms are equal in Swift, and different texts for an application that compares bytes.
    @Test func anotherUnicodeFormOfATextIsAChange() throws {
        var document = try empty()
        var offered = try pack("aurora", 1)
        for (form, revision) in zip(["u\u{308}", "\u{FC}"], 2...) {
            offered.userInfo = "{\"title\":\"\(form)\"}"
            #expect(try document.add(offered))
            #expect(document.manifest.revision == revision)
            let again = try document.add(offered)
            #expect(!again)
            let found = Array(try #require(document.manifest.packs[0].userInfo).utf8)
            #expect(found == Array(try #require(offered.userInfo).utf8))
        }
    }

    @Test func unknownMembersAreKept() throws {
        let json = """
            {"x": {"deep": [1, {"y": 2.5}]}, "manifestVersion": 1, "application": "a",
             "revision": 41, "packs": [
              {"note": "mine", "id": "aurora", "version": 1, "policy": {"onDemand": {}},
               "archive": {"url": "a", "format": "tar", "size": 1, "sha256": "\
            \(String(repeating: "0", count: 64))", "old": true},
               "installedSize": 1, "fileCount": 1, "priority": -3, "userInfo": 1},
              {"id": "other", "version": 1, "policy": {"onDemand": {}}, "z": null,
               "archive": {"url": "b", "format": "tar", "size": 1, "sha256": "\
            \(String(repeating: "1", count: 64))"}, "installedSize": 1, "fileCount": 1}]}
            """
        var document = try ManifestDocument(json: Array(json.utf8))
        #expect(try document.add(try pack("aurora", 2)))
        #expect(try document.setPolicy(.prefetch([.firstInstallation]), of: try PackID("other")))
        #expect(
            text(document) == """
                {
                  "x": {
                    "deep": [
                      1,
                      {
                        "y": 2.5
                      }
                    ]
                  },
                  "manifestVersion": 1,
                  "application": "a",
                  "revision": 43,
                  "packs": [
                    {
                      "note": "mine",
                      "id": "aurora",
                      "version": 2,
                      "policy": {
                        "essential": {
                          "installationEventTypes": ["firstInstallation", "subsequentUpdate"]
                        }
                      },
                      "archive": {
                        "url": "packs/aurora-2.tar.zst",
                        "format": "tar.zst",
                        "size": 10,
                        "sha256": "\(String(repeating: "a", count: 64))"
                      },
                      "installedSize": 20,
                      "fileCount": 2,
                      "priority": -3,
                      "userInfo": {
                        "title": "Ü"
                      }
                    },
                    {
                      "id": "other",
                      "version": 1,
                      "policy": {
                        "prefetch": {
                          "installationEventTypes": ["firstInstallation"]
                        }
                      },
                      "z": null,
                      "archive": {
                        "url": "b",
                        "format": "tar",
                        "size": 1,
                        "sha256": "\(String(repeating: "1", count: 64))"
                      },
                      "installedSize": 1,
                      "fileCount": 1
                    }
                  ]
                }

                """
        )
    }

    /// The new version states no number of directories, and that of the old one would be wrong.
    @Test func theDirectoriesOfAnOlderVersionAreNotKept() throws {
        var document = try empty()
        var first = try pack("aurora", 1)
        first.directoryCount = 5
        #expect(try document.add(first))
        #expect(text(document).contains(#""fileCount": 2,\#n      "directoryCount": 5,"#))
        #expect(try document.add(try pack("aurora", 2, digit: "b")))
        #expect(document.manifest.packs.map(\.directoryCount) == [nil])
    }

    @Test func anEqualPackChangesNothing() throws {
        var document = try empty()
        #expect(try document.add(try pack("aurora", 2)))
        let before = document.json()
        #expect(try !document.add(try pack("aurora", 2)))
        let policy = try pack("aurora", 2).policy
        #expect(try !document.setPolicy(policy, of: try PackID("aurora")))
        #expect(document.json() == before)
        #expect(try document.add(try pack("aurora", 2), priority: 1))
        #expect(document.manifest.revision == 3)
    }

    @Test func membersThatTheCommandDoesNotSetAreKept() throws {
        let digest = String(repeating: "a", count: 64)
        let json = """
            {"manifestVersion": 1, "application": "net.example.app", "revision": 7, "packs": [
              {"id": "data", "version": 1, "policy": {"onDemand": {}}, "installedSize": 1, "fileCount": 1,
               "requires": {"applicationVersion": ">=2"},
               "archive": {"x-team": "maps", "sha256": "\(digest)", "url": "d/1", "size": 1,
                           "format": "file", "fileName": "data.bin"}}
            ]}
            """
        var document = try ManifestDocument(json: Array(json.utf8))
        var pack = Pack(
            id: try PackID("data"),
            version: 1,
            policy: .onDemand,
            archive: PackArchive(
                url: "d/1",
                format: .file,
                size: ByteCount(1),
                digest: try Digest(hexadecimal: digest)
            ),
            installedSize: ByteCount(1),
            fileCount: 1
        )
        #expect(try !document.add(pack))
        #expect(document.manifest.revision == 7)
        #expect(try document.add(pack, priority: 5))
        #expect(text(document).contains(#""x-team": "maps""#))
        pack.version = 2
        pack.archive?.digest = try Digest(hexadecimal: String(repeating: "b", count: 64))
        #expect(try document.add(pack))
        let added = try #require(document.manifest.packs.first)
        #expect(added.archive?.fileName == "data.bin" && added.applicationVersion != nil)
        pack.version = 3
        pack.archive?.format = .tar
        #expect(try document.add(pack))
        #expect(document.manifest.packs.first?.archive?.fileName == nil)
    }

    @Test func noRevisionFollowsTheLast() throws {
        let json =
            #"{"manifestVersion": 1, "application": "a", "revision": \#(Int.max), "packs": []}"#
        var document = try ManifestDocument(json: Array(json.utf8))
        #expect(throws: ManifestEditError.lastRevision) { try document.add(try pack("aurora", 2)) }
        #expect(document.manifest.packs.isEmpty)
    }

    @Test func replacesContentPermitsOtherContentOfAVersion() throws {
        var document = try empty()
        #expect(try document.add(try pack("aurora", 2)))
        let other = try pack("aurora", 2, digit: "b")
        #expect(try document.add(other, replacesContent: true))
        #expect(document.manifest.packs.map(\.contentDigest) == [other.contentDigest])
        #expect(document.manifest.revision == 3)
    }

    @Test func aRefusedChangeChangesNothing() throws {
        var document = try empty()
        #expect(try document.add(try pack("aurora", 2)))
        let before = document.json()
        let id = try PackID("aurora")
        #expect(throws: ManifestEditError.versionWentBack(id, present: 2, offered: 1)) {
            try document.add(try pack("aurora", 1))
        }
        #expect(throws: ManifestEditError.contentOfVersionChanged(id, version: 2)) {
            try document.add(try pack("aurora", 2, digit: "b"))
        }
        #expect(throws: ManifestEditError.unknownPack(try PackID("no"))) {
            try document.setPolicy(.onDemand, of: try PackID("no"))
        }
        var wrong = try pack("borealis", 1)
        wrong.archive?.url = "a b"
        #expect(
            throws: ManifestEditError.manifest(
                .invalid(
                    member: "packs[1].archive.url",
                    ValueError(
                        expected: "a URL without spaces and control characters",
                        text: "a b"
                    )
                )
            )
        ) { try document.add(wrong) }
        #expect(document.json() == before)
    }
}
