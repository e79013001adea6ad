import StageDisplay
import StageModel
import Testing

struct PackagingFrameTests {
    private static func line(
        _ columns: Int,
        _ phase: PackagingActivity.Phase,
        of subject: String = "aurora"
    ) -> String {
        var activity = PackagingActivity(subject, total: ByteCount(400_000_000))
        activity.phase = phase
        return PackagingFrame(columns: columns).line(of: activity, at: 0).description
    }

    @Test(arguments: [
        (40, "⠋ aurora  31.2 MB written"),
        (80, "⠋ aurora  31.2 MB written, 120.0 MB of 400.0 MB read"),
        (200, "⠋ aurora  31.2 MB written, 120.0 MB of 400.0 MB read"),
    ])
    func anArchiveShowsWhatIsWrittenAndNoBar(columns: Int, expected: String) {
        let phase = PackagingActivity.Phase.archiving(
            read: ByteCount(120_000_000),
            written: ByteCount(31_200_000)
        )
        #expect(Self.line(columns, phase) == expected)
    }

    @Test func anArchiveWhoseFilesAreReadIsNotComplete() {
        let all = PackagingActivity.Phase.archiving(
            read: ByteCount(400_000_000),
            written: ByteCount(31_200_000)
        )
        #expect(Self.line(80, all) == "⠋ aurora  31.2 MB written, everything read")
    }

    @Test(arguments: [
        (40, "⠋ aurora ━━────── 100.0/400.0 MB packed"),
        (80, "⠋ aurora ━━━━━━━━━━╸─────────────────────────────── 100.0 MB of 400.0 MB packed"),
    ])
    func filesThatArePackedHaveABarOfTheirBytes(columns: Int, expected: String) {
        #expect(Self.line(columns, .packing(ByteCount(100_000_000))) == expected)
    }

    @Test func filesThatAreExaminedHaveABarOfTheirBytes() {
        let line = Self.line(80, .trying(ByteCount(300_000_000)))
        #expect(
            line
                == "⠋ aurora ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━────────── 300.0 MB of 400.0 MB examined"
        )
    }

    @Test func aWideNameLeavesRoomForTheNumbers() {
        let phase = PackagingActivity.Phase.comparing(
            ByteCount(1_000_000),
            of: ByteCount(4_000_000)
        )
        let line = Self.line(40, phase, of: "北極光の壁紙と音楽の全集")
        #expect(line == "⠋ 北極光の壁紙と… 1.0/4.0 MB")
        #expect(line.terminalColumns <= 39)
    }
}
