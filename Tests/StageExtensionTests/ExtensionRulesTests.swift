import StageExtension
import StageModel
import StageTesting
import Testing

/// Downloads that an extension may request, according to Apple's documentation and the packs of the manifest.
@Suite(.directory) struct ExtensionRulesTests {
    private static func file(
        _ identifier: String = "news",
        _ change: (inout ExtensionURLDownload) -> Void = { _ in }
    ) -> ExtensionDownload {
        var file = ExtensionURLDownload(
            identifier: identifier,
            url: "https://cdn.example.com/news.json",
            fileSize: 1,
            applicationGroup: Bench.group
        )
        change(&file)
        return .url(file)
    }

    /// A response of an extension, and the expected decisions.
    struct Row: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var request = ContentRequest.install
        var downloads: [ExtensionDownload]
        var violation: ExtensionRules.Violation?

        init(
            _ name: String,
            _ downloads: [ExtensionDownload],
            _ download: String? = nil,
            _ refusal: ExtensionRefusal? = nil,
            at request: ContentRequest = .install
        ) {
            testDescription = name
            self.request = request
            self.downloads = downloads
            guard let download, let refusal else { return }
            violation = .init(download: download, refusal: refusal)
        }
    }

    private static let other = ApplicationGroupID(unchecked: "com.example.other")

    static let rows: [Row] = [
        Row("nothing", []),
        Row("packs and a file", [pack("dawn"), pack("dusk", essential: true), file()]),
        Row("the same identifier", [file(), file()], "news", .duplicate),
        Row("the same pack", [pack("dawn"), pack("dawn")], "dawn", .duplicate),
        Row("a file like a pack", [pack("dawn"), file("dawn")], "dawn", .duplicate),
        Row("a foreign pack", [pack("mars")], "mars", .unknownPack),
        Row("essential at an update", [pack("dawn", essential: true)], at: .update),
        Row(
            "an essential pack at a check",
            [pack("dawn", essential: true)],
            "dawn",
            .essential(.periodic),
            at: .periodic
        ),
        Row(
            "an essential file at a check",
            [file { $0.isEssential = true }],
            "news",
            .essential(.periodic),
            at: .periodic
        ),
        Row(
            "not essential at a check",
            [pack("dawn", essential: false), file()],
            at: .periodic
        ),
        Row(
            "plain http",
            [file { $0.url = "http://cdn.example.com/a" }],
            "news",
            .insecure(url: "http://cdn.example.com/a")
        ),
        Row("http of this machine", [file { $0.url = "http://127.0.0.1:8080/a" }]),
        Row("http of this machine by name", [file { $0.url = "http://localhost/a" }]),
        Row("http of this machine in IPv6", [file { $0.url = "http://[::1]/a" }]),
        Row(
            "almost this machine",
            [file { $0.url = "http://127.0.0.1.example.com/a" }],
            "news",
            .insecure(url: "http://127.0.0.1.example.com/a")
        ),
        Row(
            "a local file",
            [file { $0.url = "file:///etc/shadow" }],
            "news",
            .insecure(url: "file:///etc/shadow")
        ),
        Row(
            "another group",
            [file { $0.applicationGroup = other }],
            "news",
            .otherGroup(expected: Bench.group, found: other)
        ),
        Row("no bytes", [file { $0.fileSize = 0 }], "news", .fileSize(0)),
        Row("fewer bytes than none", [file { $0.fileSize = -1 }], "news", .fileSize(-1)),
        Row("a header", [file { $0.headers = ["X-Token": "a b"] }]),
        Row(
            "a header of the host's",
            [file { $0.headers = ["RANGE": "bytes=0-"] }],
            "news",
            .header(name: "RANGE")
        ),
        Row(
            "a header within a header",
            [file { $0.headers = ["X": "a\r\nHost: b"] }],
            "news",
            .header(name: "X")
        ),
        Row(
            "a name that is no token",
            [file { $0.headers = ["X Y": "a"] }],
            "news",
            .header(name: "X Y")
        ),
        Row("as many as there may be", (0..<10_000).map { file("\($0)") }),
        Row(
            "one more",
            (0...10_000).map { file("\($0)") },
            "10000",
            .tooMany(limit: 10_000, found: 10_001)
        ),
    ]

    @Test(arguments: rows) func anAnswerIsTakenOrRefusedAsAWhole(_ row: Row) throws {
        let rules = ExtensionRules(try Bench(row.request).request)
        do throws(ExtensionRules.Violation) {
            #expect(try rules.accepted(row.downloads) == row.downloads)
            #expect(row.violation == nil)
        } catch {
            #expect(error == row.violation)
        }
    }

    @Test func aFileThatIsAPacksArchiveCountsAsThePack() throws {
        let rules = ExtensionRules(try Bench().request)
        for url in ["https://cdn.example.com/dawn", "https://mirror.example.org/dawn"] {
            let download = Self.file { file in
                file.url = url
                file.fileSize = 1024
                file.isEssential = true
                file.priority = 4
            }
            let dawn = PackID(unchecked: "dawn")
            #expect(
                try rules.accepted([download]) == [.pack(dawn, essential: true, priority: 4)]
            )
            #expect(throws: ExtensionRules.Violation(download: "dawn", refusal: .duplicate)) {
                try rules.accepted([download, pack("dawn")])
            }
        }
    }

    @Test func aFileOfAnotherSizeThanThePacksArchiveIsAFile() throws {
        let rules = ExtensionRules(try Bench().request)
        let download = Self.file { file in
            file.url = "https://cdn.example.com/dawn"
            file.fileSize = 1023
        }
        #expect(try rules.accepted([download]) == [download])
    }
}
