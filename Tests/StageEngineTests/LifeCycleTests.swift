import StageEngine
import StageModel
import Testing

/// The life cycle that Apple documents for Managed Background Assets, compared with plans.
struct LifeCycleTests {
    /// The state of the pack in the container before the event.
    enum Before: CaseIterable {
        case nothing
        case thisVersion
        case earlierVersion
    }

    private static let install: Set<InstallationEvent> = [.firstInstallation]
    private static let update: Set<InstallationEvent> = [.subsequentUpdate]

    /// Policies by event: whether the event stages a pack that is not staged.
    private static let rows: [(policy: DownloadPolicy, request: ContentRequest, isStaged: Bool)] = [
        (.essential(install), .install, true),
        (.essential(install), .update, false),
        (.essential(install), .periodic, false),
        (.essential(update), .install, false),
        (.essential(update), .update, true),
        (.essential(update), .periodic, false),
        (.essential([.firstInstallation, .subsequentUpdate]), .install, true),
        (.essential([.firstInstallation, .subsequentUpdate]), .update, true),
        (.essential([.firstInstallation, .subsequentUpdate]), .periodic, false),
        (.prefetch(install), .install, true),
        (.prefetch(install), .update, false),
        (.prefetch(install), .periodic, false),
        (.prefetch(update), .install, false),
        (.prefetch(update), .update, true),
        (.prefetch(update), .periodic, false),
        (.onDemand, .install, false),
        (.onDemand, .update, false),
        (.onDemand, .periodic, false),
    ]

    private func planner(_ pack: Pack, _ before: Before = .nothing) throws -> Planner {
        let manifest = Manifest(
            application: try ApplicationID("net.example.game"),
            revision: 1,
            packs: [pack]
        )
        let staged: Planner.StagedVersion? =
            switch before {
            case .nothing: nil
            case .thisVersion:
                .init(version: pack.version, contentDigest: pack.contentDigest)
            case .earlierVersion: .init(version: 1, contentDigest: .sample(0))
            }
        return Planner(manifest: manifest, staged: staged.map { [pack.id: $0] } ?? [:])
    }

    private func decision(
        _ planner: Planner,
        _ request: ContentRequest,
        essentialOnly: Bool = false
    ) -> Plan.Decision? {
        planner.plan(for: .event(request, essentialOnly: essentialOnly)).entries.first?.decision
    }

    @Test(arguments: rows, Before.allCases)
    func aPolicyNamesItsEventsAndWhatIsStagedIsKeptUpToDate(
        row: (policy: DownloadPolicy, request: ContentRequest, isStaged: Bool),
        before: Before
    ) throws {
        let planner = try planner(try .sample("level", row.policy), before)
        let skipReason: Plan.Decision =
            switch row.policy {
            case .essential(let events), .prefetch(let events): .skip(.otherEvents(events))
            case .onDemand: .skip(.onDemand)
            }
        let expected: Plan.Decision =
            switch before {
            case .nothing: row.isStaged ? .stage(.missing) : skipReason
            case .thisVersion: .skip(.upToDate)
            case .earlierVersion: .stage(.outdated(staged: 1))
            }
        #expect(decision(planner, row.request) == expected)
    }

    @Test(arguments: rows)
    func aHookStagesEssentialPacksAlone(
        row: (policy: DownloadPolicy, request: ContentRequest, isStaged: Bool)
    ) throws {
        let decision = decision(
            try planner(try .sample("level", row.policy)),
            row.request,
            essentialOnly: true
        )
        if case .essential = row.policy, row.isStaged {
            #expect(decision == .stage(.missing))
        } else if case .skip = decision {
        } else {
            Issue.record("\(String(describing: decision))")
        }
    }

    @Test(arguments: rows)
    func aPeriodicRequestCompletesTheEventThatIsNotComplete(
        row: (policy: DownloadPolicy, request: ContentRequest, isStaged: Bool)
    ) throws {
        guard row.request != .periodic else { return }
        var planner = try planner(try .sample("level", row.policy))
        planner.pending = [row.request]
        #expect(planner.request == row.request)
        let isStaged = decision(planner, .periodic) == .stage(.missing)
        #expect(isStaged == row.isStaged)
    }

    /// Limits that are one byte too small, and just large enough, for essential and other packs.
    private static let limits: [(Allowance, isEssential: Bool, size: Int64)] = [
        (.essentialDownloadAllowance, true, 1000),
        (.essentialMaxInstallSize, true, 5000),
        (.downloadAllowance, false, 1000),
        (.maxInstallSize, false, 5000),
    ]

    @Test(arguments: limits, [true, false])
    func anAllowanceIsExactAndIsTheOtherKindsNoMatter(
        limit: (allowance: Allowance, isEssential: Bool, size: Int64),
        isPackEssential: Bool
    ) throws {
        let policy: DownloadPolicy =
            isPackEssential ? .essential(Self.install) : .prefetch(Self.install)
        var planner = try planner(try .sample("level", policy))
        for spare in [-1, 0] as [Int64] {
            let value = ByteCount(limit.size + spare)
            planner.budget = InitialBudget(restrictions: .init(limit.allowance, value))
            let isRefused = spare < 0 && limit.isEssential == isPackEssential
            let expected: Plan.Decision =
                isRefused
                ? .refuse(
                    .exceedsAllowance(
                        limit.allowance,
                        needed: ByteCount(limit.size),
                        remaining: value
                    )
                ) : .stage(.missing)
            #expect(decision(planner, .install) == expected)
        }
    }

    @Test func theManifestCountsForTheEssentialAllowance() throws {
        var planner = try planner(try .sample("level", .essential(Self.install)))
        for (manifest, isStaged) in [(24, true), (25, false)] as [(Int64, Bool)] {
            planner.budget = InitialBudget(
                restrictions: .init(.essentialDownloadAllowance, ByteCount(1024)),
                essentialDownloads: ByteCount(manifest)
            )
            #expect((decision(planner, .install) == .stage(.missing)) == isStaged)
        }
    }

    @Test func packsThatDoNotFitLeaveTheAllowanceToSmallerOnes() throws {
        let packs: [Pack] = [
            try .sample("large", .prefetch(Self.install), size: 900),
            try .sample("huge", .prefetch(Self.install), size: 901),
            try .sample("small", .prefetch(Self.install), size: 100),
        ]
        var planner = Planner(
            manifest: Manifest(
                application: try ApplicationID("net.example.game"),
                revision: 1,
                packs: packs
            )
        )
        planner.budget = InitialBudget(restrictions: .init(.downloadAllowance, ByteCount(1000)))
        let plan = planner.plan(for: .event(.install, essentialOnly: false))
        let refusal = Plan.Refusal.exceedsAllowance(
            .downloadAllowance,
            needed: ByteCount(901),
            remaining: ByteCount(100)
        )
        #expect(
            plan.entries.map(\.decision) == [.stage(.missing), .refuse(refusal), .stage(.missing)]
        )
    }

    /// An archive may replace objects that have failed if its bytes are left beside all planned transfers.
    @Test(
        arguments: [
            (1209, [false, false]), (1210, [true, false]), (2219, [true, false]),
            (2220, [true, true]), (nil, [true, true]),
        ] as [(Int64?, [Bool])]
    )
    func anAllowanceLeavesArchivesForAsManyPacksAsItHasBytesFor(
        allowance: Int64?,
        expected: [Bool]
    ) throws {
        var packs: [Pack] = []
        for (id, digest) in [("first", Digest.sample(3)), ("second", Digest.sample(4))] {
            var pack = try Pack.sample(id, .prefetch(Self.install))
            pack.index = PackIndex(
                url: "i/\(id)",
                size: ByteCount(10),
                digest: digest,
                contentSize: ByteCount(10),
                contentDigest: digest,
                bundleSize: ByteCount(90)
            )
            packs.append(pack)
        }
        var planner = Planner(
            manifest: Manifest(
                application: try ApplicationID("net.example.game"),
                revision: 1,
                packs: packs
            )
        )
        planner.budget = allowance.map { bytes in
            InitialBudget(restrictions: .init(.downloadAllowance, ByteCount(bytes)))
        }
        let plan = planner.plan(for: .event(.install, essentialOnly: false))
        #expect(plan.packsToStage == packs)
        #expect(plan.entries.map(\.mayReplaceObjects) == expected)
    }

    @Test(
        arguments: [
            (["cdn.example.com"], ["cdn.example.com"], true),
            (["cdn.example.com"], ["*.example.com"], true),
            (["example.com"], ["*.example.com"], false),
            (["notexample.com"], ["*.example.com"], false),
            (["mirror.example.net", "cdn.example.com"], ["*.example.com"], true),
            (["mirror.example.net"], ["*.example.com"], false),
            (["cdn.example.com"], [], false),
        ] as [([String], [String], Bool)]
    )
    func contentComesFromDomainsOfTheList(
        hosts: [String],
        allowed: [String],
        isStaged: Bool
    ) throws {
        var planner = try planner(try .sample("level", .essential(Self.install)))
        var restrictions = Registration.Restrictions()
        restrictions.downloadDomainAllowList = allowed
        planner.budget = InitialBudget(restrictions: restrictions) { _ in hosts }
        let expected: Plan.Decision =
            isStaged ? .stage(.missing) : .refuse(.disallowedDomain(hosts))
        #expect(decision(planner, .install) == expected)
    }

    @Test func restrictionsDoNotApplyToPacksThatAnApplicationRequests() throws {
        let pack = try Pack.sample("level", .onDemand)
        var planner = try planner(pack)
        planner.budget = InitialBudget(restrictions: .init(.downloadAllowance, .zero))
        #expect(planner.plan(for: .packs([pack.id])).packsToStage == [pack])
    }

    @Test func anExtensionDecidesInsteadOfPolicies() throws {
        let packs: [Pack] = [
            try .sample("named", .essential(Self.install)),
            try .sample("chosen", .onDemand),
            try .sample("urgent", .onDemand),
        ]
        var planner = Planner(
            manifest: Manifest(
                application: try ApplicationID("net.example.game"),
                revision: 1,
                packs: packs
            )
        )
        planner.choices = [packs[1].id: false, packs[2].id: true]
        let all = planner.plan(for: .event(.install, essentialOnly: false))
        #expect(all.packsToStage.map(\.id.text) == ["urgent", "chosen"])
        #expect(all.entries.last?.decision == .skip(.declined))
        let essential = planner.plan(for: .event(.install, essentialOnly: true))
        #expect(essential.packsToStage.map(\.id.text) == ["urgent"])
    }
}

extension Registration.Restrictions {
    /// Restrictions with one value set.
    fileprivate init(_ allowance: Allowance, _ value: ByteCount) {
        self.init()
        switch allowance {
        case .downloadAllowance: downloadAllowance = value
        case .essentialDownloadAllowance: essentialDownloadAllowance = value
        case .maxInstallSize: maxInstallSize = value
        case .essentialMaxInstallSize: essentialMaxInstallSize = value
        }
    }
}

extension Pack {
    /// A pack of version 2 with an archive of `size` bytes and files of 5,000.
    fileprivate static func sample(
        _ id: String,
        _ policy: DownloadPolicy,
        size: Int64 = 1000
    ) throws -> Pack {
        Pack(
            id: try PackID(id),
            version: 2,
            policy: policy,
            archive: PackArchive(
                url: "\(id).tar",
                format: .tar,
                size: ByteCount(size),
                digest: .sample(2)
            ),
            installedSize: ByteCount(5000),
            fileCount: 3
        )
    }
}
