import StageDisplay
import StageEngine
import StageModel
import Testing

/// The frames that a terminal of 40, 80 and 200 columns shows.
struct StagingFrameTests {
    private static func frame(
        _ columns: Int,
        _ activity: StagingActivity,
        at time: Double
    ) -> String {
        StagingFrame(columns: columns).lines(of: activity, at: time)
            .map(\.description).joined(separator: "\n")
    }

    /// Returns a bar of `columns` columns, with `filled` of them filled.
    private static func bar(_ filled: Double, of columns: Int) -> String {
        let whole = String(repeating: "━", count: Int(filled))
        let half = filled > filled.rounded(.down) ? "╸" : ""
        return whole + half
            + String(repeating: "─", count: columns - whole.count - half.count)
    }

    /// A run of three packs: one downloads, one is unpacked, one waits for a silent server.
    private static func activity() throws -> StagingActivity {
        var activity = StagingActivity()
        activity.begin(
            try PlannedPacks.plan([
                ("aurora", 40_000_000), ("wallpapers-of-the-northern-lights", 10_000_000),
                ("voices", 30_000_000),
            ])
        )
        let (aurora, wallpapers, voices) = try (
            PackID("aurora"), PackID("wallpapers-of-the-northern-lights"), PackID("voices")
        )
        for id in [aurora, wallpapers, voices] {
            activity.apply(
                .connecting(url: "https://cdn.example.org/packs/\(id)"),
                to: id,
                at: 100
            )
        }
        activity.apply(.received(ByteCount(10_000_000), reused: .zero), to: aurora, at: 101)
        activity.sampleRate(at: 100)
        activity.apply(.received(ByteCount(20_000_000), reused: .zero), to: aurora, at: 104)
        activity.apply(.verified, to: wallpapers, at: 103)
        activity.apply(.unpacked(ByteCount(15_000_000)), to: wallpapers, at: 104)
        activity.sampleRate(at: 102)
        return activity
    }

    @Test(arguments: [
        (
            40,
            """
              aurora       ━━━╸─── 20.0/40.0 MB
              wallpapers-… ━━━━━── unpacked  75 %
            ⠋ voices       waiting for cdn.example…
              0 of 3 packs ━━╸──── 30.0/80.0 MB
            """
        ),
        (
            80,
            """
              aurora                   ━━━━━───── 20.0 MB of 40.0 MB
              wallpapers-of-the-north… ━━━━━━━╸── unpacked 15.0 MB of 20.0 MB
            ⠋ voices                   waiting for cdn.example.org (4 s)
              0 of 3 packs             ━━━╸────── 30.0 MB of 80.0 MB, 10.0 MB/s, 5 s left
            """
        ),
        (
            200,
            """
              aurora                            \(bar(51, of: 102))  50 %  20.0 MB of 40.0 MB from cdn.example.org
              wallpapers-of-the-northern-lights \(bar(76.5, of: 102))  75 %  unpacked 15.0 MB of 20.0 MB
            ⠋ voices                            waiting for cdn.example.org (4 s)
              0 of 3 packs                      \(bar(38, of: 102))  37 %  30.0 MB of 80.0 MB, 10.0 MB/s, 5 s left
            """
        ),
    ])
    func everyLineUsesTheWidth(columns: Int, expected: String) throws {
        #expect(try Self.frame(columns, Self.activity(), at: 104) == expected)
    }

    @Test(arguments: [1, 8, 20, 40, 72, 80, 120, 200, 500])
    func noLineIsWiderThanTheTerminal(columns: Int) throws {
        for glyphs in [DisplayGlyphs.unicode, .ascii] {
            let frame = StagingFrame(columns: columns, glyphs: glyphs)
            for line in frame.lines(of: try Self.activity(), at: 104) {
                #expect(line.terminalColumns <= max(columns - 1, 1))
            }
        }
    }

    @Test func aServerThatIsSilentBeforeThereIsAManifestIsNamed() {
        var activity = StagingActivity()
        let url = "https://user@packs.example.org:8443/manifest.json"
        activity.applyToManifest(.connecting(url: url), at: 10)
        #expect(Self.frame(80, activity, at: 10.1) == "⠙ manifest from packs.example.org:8443")
        #expect(
            Self.frame(80, activity, at: 17.25) == "⠹ manifest from packs.example.org:8443 (7 s)"
        )
        activity.end()
        #expect(Self.frame(80, activity, at: 18) == "")
    }

    @Test(arguments: [
        ("https://host", "host"), ("https://a@b@host:1/c@d", "host:1"),
        ("https://host?a@b", "host"), ("https://host#a@b", "host"),
    ])
    func aServerIsNamedWithoutItsUser(url: String, host: String) {
        var activity = StagingActivity()
        activity.applyToManifest(.connecting(url: url), at: 10)
        #expect(Self.frame(80, activity, at: 10.1) == "⠙ manifest from \(host)")
    }

    /// To Swift, '@' and a combining character after it are one character.
    @Test func aCombiningCharacterHidesNoUser() {
        var activity = StagingActivity()
        activity.applyToManifest(.connecting(url: "https://user:word@\u{301}host/"), at: 10)
        let frame = Self.frame(80, activity, at: 10.1)
        #expect(frame.contains("host"), "\(frame)")
        #expect(!frame.contains("word"), "\(frame)")
    }

    @Test func theLineOfAnEndedPackFitsIntoNarrowTerminals() throws {
        var activity = try Self.activity()
        let (aurora, voices) = try (PackID("aurora"), PackID("voices"))
        let figures = StagingFigures(
            transferred: ByteCount(28_000_000),
            reused: ByteCount(12_000_000),
            source: nil
        )
        activity.apply(.ended(.staged(figures)), to: aurora, at: 112)
        activity.apply(.ended(.failed(.cancelled)), to: voices, at: 112)
        func line(_ id: PackID, _ columns: Int) -> String? {
            StagingFrame(columns: columns).endLine(of: id, in: activity, at: 112)?.description
        }
        #expect(
            line(aurora, 80) == "✓ aurora  version 1: 28.0 MB downloaded, 12.0 MB reused in 12 s"
        )
        #expect(line(aurora, 40) == "✓ aurora  28.0 MB in 12 s")
        #expect(line(voices, 80) == "✗ voices  not installed")
        #expect(line(try PackID("wallpapers-of-the-northern-lights"), 80) == nil)
    }

    @Test func stylesMarkNamesBarsAndOutcomes() throws {
        var activity = try Self.activity()
        let aurora = try PackID("aurora")
        let frame = StagingFrame(columns: 40, glyphs: .ascii)
        let line = try #require(frame.lines(of: activity, at: 104).first)
        #expect(
            line.coloured
                == "  \u{1B}[1maurora      \u{1B}[0m \u{1B}[36m###\u{1B}[0m\u{1B}[2m----\u{1B}[0m 20.0/40.0 MB"
        )
        activity.apply(.ended(.alreadyStaged), to: aurora, at: 105)
        #expect(
            frame.endLine(of: aurora, in: activity, at: 105)?.coloured
                == "\u{1B}[32m+\u{1B}[0m \u{1B}[1maurora\u{1B}[0m  installed"
        )
    }

    @Test func packsOfOneArchiveCountItOnceAndNameEachOther() throws {
        var activity = StagingActivity()
        activity.begin(
            try PlannedPacks.plan([("one", 40_000_000), ("two", 40_000_000)], sharesArchive: true)
        )
        let (one, two) = try (PackID("one"), PackID("two"))
        activity.apply(.received(ByteCount(20_000_000), reused: .zero), to: one, at: 1)
        activity.apply(.sharesArchive(with: one), to: two, at: 1)
        #expect(
            Self.frame(72, activity, at: 1) == """
                  one          ━━━━━━━─────── 20.0 MB of 40.0 MB
                ⠋ two          shares the archive of one
                  0 of 2 packs ━━━━━━━─────── 20.0 MB of 40.0 MB
                """
        )
    }
}

/// Plans of packs that are not staged.
enum PlannedPacks {
    /// A plan that stages packs with archives of these sizes and twice as many bytes of files.
    static func plan(
        _ packs: [(name: String, size: Int64)],
        sharesArchive: Bool = false
    ) throws -> Plan {
        let offered = try packs.enumerated().map { number, pack in
            let byte = UInt8(sharesArchive ? 0 : number)
            let archive = PackArchive(
                url: "\(pack.name).tar.zst",
                format: .tarZstandard,
                size: ByteCount(pack.size),
                digest: try Digest(hexadecimal: String(repeating: "0\(byte)", count: 32))
            )
            return Pack(
                id: try PackID(pack.name),
                version: 1,
                policy: .onDemand,
                archive: archive,
                installedSize: ByteCount(pack.size * 2),
                fileCount: 3
            )
        }
        let manifest = Manifest(
            application: try ApplicationID("org.example.game"),
            revision: 1,
            packs: offered
        )
        return Planner(manifest: manifest).plan(for: .packs(Set(offered.map(\.id))))
    }
}
