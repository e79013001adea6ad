import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The metrics for Prometheus, and the lines for the journal of systemd.
@Suite(.apart, .server, .directory, .mountNamespaceIfRoot)
struct MetricsTests {
    private static func packs() throws -> [SamplePack] {
        let events: Set<InstallationEvent> = [.firstInstallation, .subsequentUpdate]
        return [
            try .small(try PackID("essential"), policy: .essential(events)),
            try .small(try PackID("prefetch"), policy: .prefetch(events)),
            try .small(try PackID("on-demand"), policy: .onDemand),
        ]
    }

    /// The samples of a text, without comments and with times masked.
    private static func samples(_ text: String) -> [String] {
        text.split(separator: "\n").filter { !$0.hasPrefix("#") }.map(String.init)
            .map { $0.replacing(#/seconds(\{.*\}) \d{9,}$/#) { "seconds\($0.output.1) TIME" } }
            .map { $0.replacing(#/version="[^"]+"/#, with: "version=\"V\"") }
    }

    @Test func theMetricsCountStagedMissingAndFailingPacks() async throws {
        var installed = try await Installed()
        let packs = try Self.packs()
        try installed.world.publish(packs)
        installed.world.server.answer(packs[1].path, with: .status(403))
        _ = try await installed.run("prefetch", "--all", "--attempts", "1", "--quiet")
        let application = #"application="net.example.wallpaper""#
        let ending = try await installed.run("metrics")
        #expect(ending.status == 0)
        #expect(
            Self.samples(ending.output) == [
                #"stagepack_build_info{version="V"} 1"#,
                "stagepack_application_readable{\(application)} 1",
                "stagepack_packs{\(application),policy=\"essential\",state=\"staged\"} 1",
                "stagepack_packs{\(application),policy=\"onDemand\",state=\"missing\"} 1",
                "stagepack_packs{\(application),policy=\"prefetch\",state=\"missing\"} 1",
                "stagepack_missing_essential_packs{\(application)} 0",
                "stagepack_staged_bytes{\(application)} \(packs[0].pack.installedSize.rawValue)",
                "stagepack_downloaded_bytes{\(application)} 0",
                "stagepack_pack_staged_timestamp_seconds{\(application),pack=\"essential\"} TIME",
                "stagepack_manifest_received_timestamp_seconds{\(application)} TIME",
                "stagepack_last_run_timestamp_seconds{\(application)} TIME",
                "stagepack_last_run_failed{\(application)} 1",
                "stagepack_last_success_timestamp_seconds{\(application)} 0",
                "stagepack_pending_event{\(application)} 1",
                "stagepack_pack_failures{\(application),pack=\"prefetch\"} 1",
            ]
        )
        // The last success may have the same time as the last run: two runs can end within one second.
        let container = try #require(try Container.open(installed.container))
        try container.updateHistory(of: installed.registration.application) { history in
            history.lastSuccessAt = history.lastRun?.endedAt
        }
        let second = Self.samples(try await installed.run("metrics").output)
        #expect(second.contains("stagepack_last_run_failed{\(application)} 1"))
        let named = packs[1].path
        installed.world.server.answer(named, with: .content(packs[1].archive))
        _ = try await installed.run("prefetch", "--all", "--quiet")
        let after = Self.samples(try await installed.run("metrics").output)
        #expect(after.contains("stagepack_last_run_failed{\(application)} 0"))
        #expect(after.contains("stagepack_last_success_timestamp_seconds{\(application)} TIME"))
        #expect(!after.contains { $0.hasPrefix("stagepack_pack_failures") })
    }

    /// The documented alert `time() - stagepack_last_success_timestamp_seconds > 172800` fires with a 0.
    @Test func theMetricsOfAMachineWhereNothingWorksRaiseTheDocumentedAlerts() async throws {
        var installed = try await Installed()
        let application = #"application="net.example.wallpaper""#
        _ = try await installed.run("prefetch", "--all", "--attempts", "1", "--quiet")
        let failed = Self.samples(try await installed.run("metrics").output)
        #expect(failed.contains("stagepack_application_readable{\(application)} 1"))
        #expect(failed.contains("stagepack_last_success_timestamp_seconds{\(application)} 0"))
        #expect(failed.contains("stagepack_last_run_failed{\(application)} 1"))
        #expect(!failed.contains { $0.hasPrefix("stagepack_missing_essential_packs") })
        // The success of a named pack does not hide that the run for all packs has failed.
        let packs = try Self.packs()
        try installed.world.publish(packs)
        installed.world.server.answer(packs[0].path, with: .status(403))
        _ = try await installed.run("prefetch", "--all", "--attempts", "1", "--quiet")
        #expect(
            try await installed.run(
                "load",
                "on-demand",
                "--app",
                "net.example.wallpaper",
                "--quiet"
            ).status == 0
        )
        let loaded = Self.samples(try await installed.run("metrics").output)
        #expect(loaded.contains("stagepack_last_success_timestamp_seconds{\(application)} 0"))
        #expect(loaded.contains("stagepack_last_run_failed{\(application)} 0"))
        #expect(loaded.contains("stagepack_missing_essential_packs{\(application)} 1"))
        #expect(
            loaded.contains("stagepack_pack_failures{\(application),pack=\"essential\"} 1")
        )
    }

    @Test func aFileOfMetricsIsReplacedInOneStepAndReadByAll() async throws {
        let installed = try await Installed()
        let directory = installed.world.directory
        try directory.write(
            Array("old".utf8),
            to: "a.prom",
            durably: false,
            exactly: .ownerReadWrite
        )
        let path = directory.path.appending("a.prom").string
        #expect(try await installed.run("metrics", "-o", path).status == 0)
        #expect(try directory.status("a.prom")?.mode == 0o644)
        let text = try #require(try directory.bytes(of: "a.prom", limit: 1 << 20))
        #expect(
            Self.samples(String(decoding: text, as: UTF8.self)).last
                == #"stagepack_application_readable{application="net.example.wallpaper"} 0"#
        )
        let names = try directory.entries().map(\.path.string)
        #expect(!names.contains { $0.hasPrefix(".a.prom") })
        #expect(try await installed.run("metrics", "-o", "\(path).txt").status == 64)
    }

    @Test func packsThatFailForOneReasonAreOneLine() async throws {
        var world = try World()
        let packs = try (1...30).map { try SamplePack.small(try PackID("pack-\($0)")) }
        try world.publish(packs)
        for pack in packs { world.server.answer(pack.path, with: .status(403)) }
        let ending = try await world.run("prefetch", "--attempts", "1", "--progress", "none")
        let lines = ending.error.split(separator: "\n")
        #expect(lines.count { $0.hasPrefix("stagepack: error:") } == 1, "\(ending.error)")
        #expect(
            lines.first?.hasSuffix("; the same for 'pack-2', 'pack-3' and 27 other packs") ?? false,
            "\(ending.error)"
        )
    }

    /// A command that runs another one whose standard error appears to be the journal.
    private static let withJournal = [
        "/bin/sh", "-c", #"JOURNAL_STREAM=$(stat -Lc %d:%i /dev/fd/2) exec "$@""#, "sh",
    ]

    @Test func linesForTheJournalHavePrioritiesAndNoTimes() async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora)
        try world.publish(pack)
        world.server.answer(pack.path, with: .status(403))
        world.program.wrapper = Self.withJournal + [try Program.path.string]
        let ending = try await world.run("prefetch", "--attempts", "1", "--progress", "none")
        let lines = ending.error.split(separator: "\n")
        #expect(lines.count == 2, "\(ending.error)")
        #expect(lines.first?.hasPrefix("<3>stagepack: error: pack 'aurora': ") ?? false)
        #expect(lines.last?.hasPrefix("<6>hint: ") ?? false)
    }

    /// Output of an extension has the priority of a notice.
    @Test func aLineForTheJournalHasThePriorityOfItsLevel() async throws {
        var installed = try await Installed()
        try installed.world.publish(try Self.packs())
        try installed.extend(
            with: """
                print("a text", file=sys.stderr)
                answer["downloads"] = []
                """
        )
        installed.world.program.wrapper =
            installed.world.program.wrapper.dropLast() + Self.withJournal
            + [try Program.path.string]
        let ending = try await installed.run("prefetch", "--all", "--progress", "none")
        #expect(ending.status == 0, "\(ending)")
        #expect(ending.error.hasPrefix("<5>stagepack: notice: "), "\(ending)")
    }
}
