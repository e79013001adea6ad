import FoundationEssentials
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The decisions that `why` prints after several runs.
@Suite(.server, .directory)
struct WhyTests {
    private struct Report: Decodable {
        struct Application: Decodable {
            struct Pack: Decodable, Equatable {
                var id, outcome, rule, reason: String
                var failures: Int
            }

            var lastRun: String
            var request, pending: String?
            var packs: [Pack]
        }

        var applications: [Application]
    }

    private func packs(_ world: World) async throws -> [Report.Application.Pack] {
        let output = try await world.succeed("why", "--json")
        let report = try JSONDecoder().decode(Report.self, from: Data(output.utf8))
        return try #require(report.applications.first).packs
    }

    private func decision(
        _ id: String,
        _ outcome: String,
        _ rule: String,
        _ reason: String,
        failures: Int = 0
    ) -> Report.Application.Pack {
        Report.Application.Pack(
            id: id,
            outcome: outcome,
            rule: rule,
            reason: reason,
            failures: failures
        )
    }

    /// A run for other packs leaves the last decision unchanged, including the count of failures.
    @Test func eachPackKeepsItsOwnLastDecision() async throws {
        var world = try World()
        let ids = try ["early", "late", "rare"].map { try PackID($0) }
        let packs = [
            try SamplePack.small(ids[0]),
            try .small(ids[1], policy: .prefetch([.firstInstallation])),
            try .small(ids[2], policy: .onDemand),
        ]
        try world.publish(packs)
        for pack in packs[1...] { world.server.answer(pack.path, with: .status(404)) }
        _ = try await world.run("prefetch", "--attempts", "1")
        _ = try await world.run("fetch", "rare", "--attempts", "1")
        let byPolicy = "policy 'essential' at 'install'"
        let late = decision(
            "late",
            "failed",
            "policy 'prefetch' at 'install'",
            "it is missing",
            failures: 1
        )
        let rare = decision("rare", "failed", "asked for by name", "it is missing", failures: 1)
        let early = decision("early", "staged", byPolicy, "it was missing")
        let sorted = try await self.packs(world).sorted { $0.id < $1.id }
        #expect(sorted == [early, late, rare])

        // The next two runs do not concern the failed packs, whose decisions stay.
        try await world.succeed("prefetch", "--essential", "--event", "install")
        let present = decision(
            "early",
            "present",
            byPolicy + ", essential packs only",
            "staged and up to date"
        )
        #expect(try await self.packs(world).sorted { $0.id < $1.id } == [present, late, rare])
        _ = try await world.run("prefetch", "--attempts", "1")
        #expect(try await self.packs(world).first { $0.id == "rare" } == rare)
    }

    @Test func theSourceOfAnotherVersionIsNotNamed() async throws {
        var world = try World()
        try world.publish(try .small(.aurora))
        try await world.succeed("prefetch")
        #expect(try await world.succeed("why", "aurora").contains("\n  from: "))
        try await world.succeed("pin", "aurora")
        try world.publish(try .small(.aurora, version: 2))
        try await world.succeed("prefetch")
        let why = try await world.succeed("why", "aurora")
        #expect(why.contains("aurora, version 2: left, "), "\(why)")
        #expect(!why.contains("  from: "), "\(why)")
    }

    @Test func aRemovedPackIsReportedAsRemoved() async throws {
        var world = try World()
        try world.publish(try .small(.aurora))
        try await world.succeed("prefetch")
        try await world.succeed("remove", "aurora")
        let removed = decision("aurora", "removed", "policy 'essential' at 'install'", "by name")
        #expect(try await packs(world) == [removed])
        #expect(
            try await world.succeed("why", "aurora").contains(
                "aurora, version 1: removed, by name\n"
            )
        )
    }

    /// If no manifest was available, the decision about each pack has the manifest's failure as its reason.
    @Test func aFailureBeforeTheManifestIsTheReasonOfEachPack() async throws {
        var world = try World()
        try world.publish(try .small(.aurora), try .small(try PackID("oceans")))
        try await world.succeed("fetch", "aurora")
        world.server.answer("/manifest.json", with: .content(Array("{}".utf8)))
        #expect(try await world.run("prefetch").status == 11)
        let all = try await world.succeed("why")
        #expect(all.contains(" for 'install'\n"), "\(all)")
        #expect(
            all.contains("  problem: the manifest at '\(world.manifestURL)' is not valid"),
            "\(all)"
        )
        #expect(all.contains("aurora, version 1: staged, it was missing\n"))
        let one = try await world.succeed("why", "ocean")
        #expect(
            one.contains("  problem: the manifest at '\(world.manifestURL)' is not valid"),
            "\(one)"
        )
        #expect(one.hasSuffix("ocean: nothing was decided yet; did you mean 'oceans'?\n"), "\(one)")
    }

    /// 'why' prints local times for people, and times of RFC 3339 for programs.
    @Test(.mountNamespace)
    func timesAreLocalForPeopleAlone() async throws {
        var world = try World()
        try world.publish(try .small(.aurora))
        try await world.succeed("prefetch")
        try world.moveEast(by: 19_800)
        let output = try await world.succeed("why", "--json")
        let report = try JSONDecoder().decode(Report.self, from: Data(output.utf8))
        let time = try InternetTime(try #require(report.applications.first).lastRun)
        let local = InternetTime(secondsSince1970: time.secondsSince1970 + 19_800).description
        let text = try await world.succeed("why")
        let expected = local.replacing("T", with: " ").dropLast(4)
        #expect(text.contains("last run: \(expected) ("), "\(text)")
        #expect(
            text.contains(#/last run: [0-9: -]+ \((now|\d+ (seconds|minutes?) ago)\)/#),
            "\(text)"
        )
    }

    @Test func aContainerWithoutDecisionsIsReportedAsSuch() async throws {
        let world = try World()
        let ending = try await world.run("why")
        let source = world.source.joined(separator: " ")
        #expect(ending.status == 0)
        #expect(ending.output == "")
        #expect(
            ending.error == """
                no run has decided anything yet
                hint: run 'stagepack prefetch \(source)', or 'stagepack plan \(source)' to see what it would do

                """
        )
    }
}

extension World {
    /// Runs the program with /etc/localtime `seconds` east of UTC; as root, stagepack ignores `TZ`.
    fileprivate mutating func moveEast(by seconds: UInt16) throws {
        // RFC 8536: a header with the numbers of entries, one type of local time, and its name.
        var zone = Array("TZif".utf8) + [UInt8](repeating: 0, count: 16)
        for count in [0, 0, 0, 0, 1, 5] as [UInt8] { zone += [0, 0, 0, count] }
        zone += [0, 0, UInt8(seconds >> 8), UInt8(seconds & 0xFF), 0, 0] + Array("TEST\0".utf8)
        try directory.write(zone, to: "localtime", durably: false)
        program.wrapper = [
            "/usr/bin/unshare", "-m", "/bin/sh", "-c",
            #"mount --bind "$1" /etc/localtime && shift && exec "$@""#, "sh",
            directory.path.appending("localtime").string, try Program.path.string,
        ]
    }
}
