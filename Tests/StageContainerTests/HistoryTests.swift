import StageContainer
import StageModel
import StageSystem
import SystemPackage
import Testing

/// The record of the decisions and results of runs.
@Suite(.container) struct HistoryTests {
    private static let application = ApplicationID(unchecked: "net.example")
    private static let problem = StagingHistory.Problem(
        kind: "network",
        message: "'https://example.net/ü\"\\\n' does not answer",
        advice: "checkNetwork",
        retryAfter: 60,
        retry: "later"
    )
    private static let rules: [StagingHistory.Rule] = [
        .policy(name: "essential", event: .periodic, isEssentialOnly: true), .name, .repair,
    ]
    private static let reasons: [StagingReason] = [
        .missing, .outdated(staged: 1), .contentChanged, .damaged, .upToDate, .onDemand,
        .otherEvents([.firstInstallation, .subsequentUpdate]), .notEssential, .notSelected,
        .declined, .pinned(version: 1, rolledBackFrom: nil), .pinned(version: 1, rolledBackFrom: 2),
        .otherVersion(required: ">=2", installed: "1"), .noSpace, .exceedsQuota,
        .exceedsAllowance(name: "downloadAllowance"), .disallowedDomain,
        .makesRoom(.obsolete, lastUsed: 5), .evicted(.prefetch, lastUsed: 6), .inUse,
        .stagedByOther, .held(["power"]),
    ]

    let container: Container

    init() throws { container = try Container.make(ContainerTrait.path) }

    private static func entry(_ index: Int) -> StagingHistory.PackEntry {
        StagingHistory.PackEntry(
            id: PackID(unchecked: "pack-\(index)"),
            version: index + 1,
            decidedAt: 1_700_000_000,
            outcome: .left,
            rule: rules[index % rules.count],
            reason: reasons[index % reasons.count]
        )
    }

    private static var whole: StagingHistory {
        var history = StagingHistory()
        history.registration = "/etc/stagepack/apps.d/net.example.json"
        history.applicationVersion = "1.2"
        history.pending = [.install]
        history.firstLoadedAt = 1_700_000_001
        history.spent.essential = .kibibytes(3)
        history.spent.other = ByteCount(7)
        history.lastRun = StagingHistory.Run(
            endedAt: 1_700_000_002,
            request: .update,
            isEssentialOnly: true,
            problem: problem
        )
        // Two entries for each reason, so that the cached conversion is used again.
        history.packs = (0..<2 * reasons.count).map(entry)
        history.packs[0].source = "https://example.net/pack-0.tar"
        history.packs[1].failures = 2
        history.packs[1].problem = problem
        return history
    }

    private func keep(_ history: StagingHistory) throws {
        try container.updateHistory(of: Self.application) { $0 = history }
    }

    private func write(_ text: String) throws { try write(Array(text.utf8)) }

    private func write(_ bytes: [UInt8]) throws {
        let directory = try #require(try container.root.directory("history"))
        try directory.write(bytes, to: "net.example.json", durably: false)
    }

    private func text() throws -> String {
        let directory = try #require(try container.root.directory("history"))
        let bytes = try #require(try directory.bytes(of: "net.example.json", limit: 1 << 20))
        return try #require(String(validating: bytes, as: UTF8.self))
    }

    @Test(arguments: [StagingHistory(), whole]) func aHistoryIsReadAsItWasKept(
        history: StagingHistory
    ) throws {
        var other = history
        other.registration = other.registration == nil ? "/a" : nil
        for kept in [other, history] {
            try keep(kept)
            #expect(try container.reader.history(of: Self.application) == kept)
        }
    }

    @Test func aHistoryInAnotherLayoutIsRead() throws {
        try write(
            """
            {
              "registration" : "/etc/stagepack/apps.d/net.example.json",
              "lastRun" : {
                "endedAt" : 1700000002,
                "hasFailed" : false,
                "isEssentialOnly" : false,
                "request" : "install"
              },
              "packs" : [
                {
                  "decidedAt" : 1700000000,
                  "failures" : 0,
                  "id" : "pack-0",
                  "outcome" : "left",
                  "reason" : {
                    "missing" : {

                    }
                  },
                  "rule" : {
                    "policy" : {
                      "event" : "periodic",
                      "isEssentialOnly" : true,
                      "name" : "essential"
                    }
                  },
                  "version" : 1
                }
              ],
              "spent" : {
                "essential" : 12,
                "other" : 0
              }
            }
            """
        )
        var expected = StagingHistory()
        expected.registration = "/etc/stagepack/apps.d/net.example.json"
        expected.lastRun = .init(endedAt: 1_700_000_002, request: .install, isEssentialOnly: false)
        expected.packs = [Self.entry(0)]
        expected.spent.essential = ByteCount(12)
        #expect(try container.reader.history(of: Self.application) == expected)
    }

    @Test(arguments: [
        #""outcome":"left""#, #""reason":{"contentChanged":{}}"#, #""rule":{"repair":{}}"#,
        #""id":"pack-2""#,
    ]) func anEntryWithAnUnknownCodeIsLeftOut(member: String) throws {
        var history = Self.whole
        history.packs = (0..<4).map(Self.entry)
        try keep(history)
        let text = try text()
        let start = try #require(text.firstRange(of: #""id":"pack-2""#)).lowerBound
        let known = String(text[start...])
        let colon = try #require(member.firstIndex(of: ":"))
        let unknown = member[...colon] + #"{"unknown":{}}"#
        try write(
            text[..<start] + known.replacing(member, with: String(unknown), maxReplacements: 1)
        )
        history.packs.remove(at: 2)
        #expect(try container.reader.history(of: Self.application) == history)
    }

    @Test func aHistoryThatWasCutIsNone() throws {
        var history = Self.whole
        history.packs = [Self.entry(0)]
        try keep(history)
        let text = Array(try text().dropLast().utf8)
        for length in text.indices {
            try write(Array(text.prefix(length)))
            #expect(try container.reader.history(of: Self.application) == nil, "\(length) bytes")
        }
    }

    /// Another user's container may have text that is slow to compare; names in messages have at most 2,048 bytes.
    @Test(arguments: [(1024, true), (1025, false)])
    func theTextOfAHistoryHasALimitOfCombiningCharacters(count: Int, isRead: Bool) throws {
        var history = StagingHistory()
        history.applicationVersion = "1"
        try keep(history)
        let marks = String(repeating: "\u{301}", count: count)
        let start = #""applicationVersion":"1"#
        try write(try text().replacing(start, with: start + marks))
        history.applicationVersion = "1" + marks
        let found = try container.reader.history(of: Self.application)
        #expect(found == (isRead ? history : nil))
    }

    /// An extension's message may have more; without the cut, the history with its allowance and pending packs would be lost.
    @Test func aMessageWithMoreOfThemIsCut() throws {
        func history(_ count: Int) -> StagingHistory {
            var history = Self.whole
            history.lastRun?.problem?.message = "a" + String(repeating: "\u{301}", count: count)
            return history
        }
        try keep(history(1500))
        #expect(try container.reader.history(of: Self.application) == history(1024))
    }

    @Test func anyGenerationThatWasReadCountsAsLoaded() throws {
        #expect(try !container.reader.hasBeenLoaded(.aurora))
        try container.publishAurora(version: 1, "1")
        #expect(try !container.reader.hasBeenLoaded(.aurora))
        _ = try container.reader.lease(.aurora, marksUse: false)
        #expect(try !container.reader.hasBeenLoaded(.aurora))
        _ = try container.reader.lease(.aurora)
        #expect(try container.reader.hasBeenLoaded(.aurora))
        // The previous generation still exists.
        try container.publishAurora(version: 2, "2")
        #expect(try container.reader.hasBeenLoaded(.aurora))
        #expect(try !container.reader.hasBeenLoaded(PackID(unchecked: "other")))
    }

    /// The removed generation stays only because a reader uses it.
    @Test func aRemovedGenerationThatWasReadCountsAsLoaded() throws {
        try container.publishAurora(version: 1, "1")
        let lease = try container.reader.lease(.aurora)
        _ = try container.remove(try container.waitForLock(.aurora))
        #expect(try container.reader.currentGeneration(of: .aurora) == nil)
        #expect(try container.reader.hasBeenLoaded(.aurora))
        _ = consume lease
    }

    @Test func aGenerationWithoutItsRecordThatWasReadCountsAsLoaded() throws {
        try container.publishAurora(version: 1, "1")
        _ = try container.reader.lease(.aurora)
        let generation = try #require(try container.reader.currentGeneration(of: .aurora))
        let directory = container.reader.root.path.appending("generations").appending("aurora")
            .appending("\(generation)")
        try Directory.open(directory).remove("pack.json")
        #expect(try container.reader.hasBeenLoaded(.aurora))
    }

    @Test(arguments: [
        "../generations/aurora/1/content", "../generations/other/1/content", "elsewhere",
        "../generations/aurora/x-\(String(repeating: "0", count: 64))/content",
        "../generations/aurora/1-\(String(repeating: "0", count: 64))/other/content",
        "../generations/aurora/1-\(String(repeating: "0", count: 64))",
    ]) func aLinkOfAnotherFormIsNoStagedContent(target: String) throws {
        try container.publishAurora(version: 3, "3")
        let content = try #require(try container.reader.stagedContent(of: .aurora))
        #expect(content == (3, StagedPack.aurora(version: 3).contentDigest))
        let packs = try #require(try container.root.directory("packs"))
        try packs.replaceLink("aurora", to: target)
        #expect(try container.reader.stagedContent(of: .aurora) == nil)
    }
}
