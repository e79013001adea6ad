import StageContainer
import StageEngine
import StageModel
import Testing

/// The packs that are evicted to free space, as a table, and their use in a plan.
struct EvictionPolicyTests {
    private static let events: Set<InstallationEvent> = [.firstInstallation]

    /// A pack's policy and priority, the time of its last use, and the reason that prevents its eviction, if any.
    private struct Row {
        var id: String
        var policy: DownloadPolicy?
        var priority = 0
        var lastUsed: Int64 = 5
        var role = StoredGeneration.Role.current
        var isLeased = false
        var isPinned = false
        var isKept = false
    }

    /// The evictable packs, in the order of their eviction, and the others.
    private static let table: (going: [Row], staying: [Row]) = (
        going: [
            Row(id: "obsolete", policy: .essential(events), lastUsed: 9, role: .obsolete),
            Row(id: "unoffered-previous", lastUsed: 8, role: .previous),
            Row(id: "previous", policy: .essential(events), lastUsed: 9, role: .previous),
            Row(id: "demand-old", policy: .onDemand, priority: 9, lastUsed: 1),
            Row(id: "demand-low", policy: .onDemand, priority: -1),
            Row(id: "demand-a", policy: .onDemand),
            Row(id: "demand-b", policy: .onDemand),
            Row(id: "demand-high", policy: .onDemand, priority: 1),
            Row(id: "demand-new", policy: .onDemand, priority: -9, lastUsed: 9),
            Row(id: "prefetch-old", policy: .prefetch(events), priority: 9, lastUsed: 0),
            Row(id: "prefetch-low", policy: .prefetch([]), priority: -1),
            Row(id: "prefetch-high", policy: .prefetch(events), priority: 1),
        ],
        staying: [
            Row(id: "essential", policy: .essential(events), lastUsed: 0),
            Row(id: "essential-of-no-event", policy: .essential([]), lastUsed: 0),
            Row(id: "unoffered", lastUsed: 0),
            Row(id: "leased", policy: .onDemand, lastUsed: 0, isLeased: true),
            Row(id: "pinned", policy: .onDemand, lastUsed: 0, isPinned: true),
            Row(id: "kept", policy: .onDemand, lastUsed: 0, isKept: true),
            Row(id: "leased-prefetch", policy: .prefetch(events), lastUsed: 0, isLeased: true),
            Row(id: "leased-previous", lastUsed: 0, role: .previous, isLeased: true),
            Row(id: "leased-obsolete", lastUsed: 0, role: .obsolete, isLeased: true),
        ]
    )

    private func policy(_ rows: [Row]) throws -> EvictionPolicy {
        let packs = try rows.compactMap { row in
            try row.policy.map { try Pack.of(row.id, $0, priority: row.priority) }
        }
        return EvictionPolicy(
            generations: try rows.map { row in
                try .of(row.id, row.role, row.lastUsed, isLeased: row.isLeased, row.isPinned)
            },
            manifests: [try .of(packs)],
            keeping: Set(try rows.filter(\.isKept).map { try PackID($0.id) })
        )
    }

    @Test(arguments: [1, 2, 3] as [UInt64])
    func generationsAreEvictedInTheOrderOfTheTable(seed: UInt64) throws {
        var rows = Self.table.going + Self.table.staying
        // The result must not depend on the order on disk.
        rows = seed == 1 ? rows : seed == 2 ? rows.reversed() : rows.sorted { $0.id < $1.id }
        var policy = try policy(rows)
        let all = policy.evict(policy.queue().size)
        #expect(all.map(\.generation.id.text) == Self.table.going.map(\.id))
        let left = Set(policy.generations.map(\.id.text))
        #expect(left == Set(Self.table.staying.map(\.id)))
        #expect(policy.evict(ByteCount(Int64(1))) == [])
    }

    @Test(
        arguments: [
            (-1, 0), (0, 0), (1, 1), (100, 1), (101, 2), (1200, 12),
            // The amount exceeds everything that can be freed, so no pack is evicted.
            (1201, 3), (.max, 3),
        ] as [(Int64, Int)]
    )
    func noMoreGoesThanIsNeeded(amount: Int64, count: Int) throws {
        var policy = try policy(Self.table.going + Self.table.staying)
        let evictions = policy.evict(ByteCount(amount))
        #expect(evictions.map(\.generation.id.text) == Self.table.going.prefix(count).map(\.id))
        #expect(evictions.size + policy.size == ByteCount(Int64(2100)))
    }

    @Test func requestedPacksAreNotEvicted() throws {
        var policy = try policy(Self.table.going)
        let spared = Set(try ["demand-old", "prefetch-old"].map { try PackID($0) })
        _ = policy.evict(policy.queue(sparing: spared).size, sparing: spared)
        #expect(Set(policy.generations.map(\.id)) == spared)
    }

    @Test func aPackThatIsEssentialToAnyApplicationIsNotEvicted() throws {
        let policies: [DownloadPolicy] = [.onDemand, .essential(Self.events), .prefetch([])]
        for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1]] {
            var policy = EvictionPolicy(
                generations: [try .of("shared", .current, 1)],
                manifests: try order.map { try .of([.of("shared", policies[$0])]) }
            )
            #expect(policy.evict(ByteCount(Int64(1))) == [])
        }
    }

    @Test func withoutAReadableManifestNoCurrentPackIsEvicted() throws {
        var policy = EvictionPolicy(
            generations: [try .of("demand", .current, 1), try .of("other", .previous, 1)],
            manifests: nil
        )
        #expect(policy.evict(ByteCount(Int64(1))).map(\.reason) == [.previous])
        #expect(policy.queue().size == .zero)
    }

    /// A plan with ten thousand packs frees space for one after the other.
    @Test func oneQueueServesSeveralInTurn() throws {
        let policy = try policy(Self.table.going + Self.table.staying)
        let ids = Self.table.going.map(\.id)
        var queue = policy.queue(sparing: [try PackID(ids[3])])
        #expect(queue.size == ByteCount(Int64(1100)))
        #expect(queue.take(ByteCount(Int64(150))).map(\.generation.id.text) == Array(ids[0..<2]))
        #expect(queue.take(.zero) == [])
        #expect(queue.take(ByteCount(Int64(200))).map(\.generation.id.text) == [ids[2], ids[4]])
        // If too little can be freed, no pack is evicted.
        #expect(queue.take(ByteCount(Int64(701))) == [])
        #expect(queue.size == ByteCount(Int64(700)))
        #expect(queue.take(queue.size).map(\.generation.id.text) == Array(ids[5...]))
        #expect(queue.size == .zero)
        #expect(queue.take(ByteCount(Int64(1))) == [])
    }

    @Test func aCollectionTakesGenerationsAlone() throws {
        var first = try policy(Self.table.going + Self.table.staying)
        #expect(first.collect(includingPrevious: false).map(\.reason) == [.obsolete])
        var second = try policy(Self.table.going + Self.table.staying)
        let reasons = second.collect(includingPrevious: true).map(\.reason)
        #expect(reasons == [.obsolete, .previous, .previous])
    }
}

/// Plans that need evictions to have enough space.
struct PlannerRoomTests {
    private static let install: Set<InstallationEvent> = [.firstInstallation]
    /// The space that staging a pack of these tests takes: 100 bytes of archive, 100 of files.
    private static let space = ByteCount(Int64(200)) + .kibibytes(8) + Planner.reserve

    /// Level 2 is offered and level 1 staged; there are a previous generation of it, a pack on demand
    /// and one of the policy `prefetch`.
    private func planner() throws -> Planner {
        let packs: [Pack] = [
            try .of("level", .essential(Self.install), version: 2),
            try .of("demand", .onDemand), try .of("early", .prefetch(Self.install)),
        ]
        var planner = Planner(manifest: try .of(packs))
        planner.staged = try [
            PackID("level"): .init(version: 1, contentDigest: .sample(9)),
            PackID("demand"): .init(version: 1, contentDigest: packs[1].contentDigest),
            PackID("early"): .init(version: 1, contentDigest: packs[2].contentDigest),
        ]
        planner.evictionPolicy = EvictionPolicy(
            generations: [
                try .of("level", .current, 1), try .of("level", .previous, 1),
                try .of("demand", .current, 1), try .of("early", .current, 1),
            ],
            manifests: [planner.manifest]
        )
        return planner
    }

    /// The bytes that the disk lacks, and the evictions that free them; `nil` if no eviction helps.
    private static let rows: [(missing: Int64, reasons: [EvictionReason]?)] = [
        (0, []), (1, [.previous]), (100, [.previous]), (101, [.previous, .onDemand]),
        (200, [.previous, .onDemand]), (201, [.previous, .onDemand, .prefetch]),
        (301, nil),
    ]

    @Test(arguments: rows)
    func aPlanEvictsWhatItLacksBeforeItRefuses(
        row: (missing: Int64, reasons: [EvictionReason]?)
    ) throws {
        var planner = try planner()
        let free = Self.space - ByteCount(row.missing)
        planner.freeSpace = free
        let plan = planner.plan(for: .event(.update, essentialOnly: false))
        #expect(plan.evictions.map(\.reason) == row.reasons ?? [])
        let refusal = Plan.Refusal.noSpace(needed: Self.space, available: free)
        #expect(
            plan.entries[0].decision
                == (row.reasons == nil ? .refuse(refusal) : .stage(.outdated(staged: 1)))
        )
        for entry in plan.entries.dropFirst() {
            let eviction = plan.evictions.first {
                $0.isOfPack && $0.generation.id == entry.pack.id
            }
            #expect(entry.decision == (eviction.map(Plan.Decision.evict) ?? .skip(.upToDate)))
        }
    }

    /// The files of the previous generation have other links.
    @Test func aGenerationThatFreesNothingIsSpared() throws {
        var planner = try planner()
        var previous = try StoredGeneration.of("level", .previous, 1)
        previous.occupied = OccupiedSpace()
        planner.evictionPolicy = EvictionPolicy(
            generations: [
                try .of("level", .current, 1), previous, try .of("demand", .current, 1),
            ],
            manifests: [planner.manifest]
        )
        planner.freeSpace = Self.space - ByteCount(Int64(100))
        let plan = planner.plan(for: .event(.update, essentialOnly: false))
        #expect(plan.evictions.map(\.reason) == [.onDemand])
        planner.freeSpace = Self.space - ByteCount(Int64(101))
        let refused = planner.plan(for: .event(.update, essentialOnly: false))
        #expect(refused.evictions == [])
        #expect(!refused.packsToStage.contains { $0.id.text == "level" })
    }

    @Test func aPackThatDoesNotFitAfterEvictionsIsRefused() throws {
        var planner = try planner()
        planner.freeSpace = Self.space
        var plan = planner.plan(for: .event(.update, essentialOnly: false))
        let level = try PackID("level")
        let none = plan.refusePacks(beyond: AvailableSpace(bytes: Self.space, inodes: nil))
        #expect(none.isEmpty)
        #expect(plan.packsToStage.map(\.id) == [level])
        let free = Self.space - ByteCount(Int64(1))
        let refused = plan.refusePacks(beyond: AvailableSpace(bytes: free, inodes: nil))
        #expect(refused == [level: .failed(.noSpace(needed: Self.space, available: free))])
        #expect(plan.packsToStage.isEmpty)
    }

    /// The inodes that the disk lacks, and the evictions that free them; `nil` if no eviction helps.
    ///
    /// Each generation has 10 inodes.
    @Test(
        arguments: [
            (0, []), (1, [.previous]), (10, [.previous]), (11, [.previous, .onDemand]),
            (30, [.previous, .onDemand, .prefetch]), (31, nil),
        ] as [(Int, [EvictionReason]?)]
    )
    func aPlanEvictsForInodesBeforeItRefuses(
        row: (missing: Int, reasons: [EvictionReason]?)
    ) throws {
        var planner = try planner()
        var generations = try #require(planner.evictionPolicy).generations
        for index in generations.indices { generations[index].recordedInodes = 10 }
        planner.evictionPolicy = EvictionPolicy(
            generations: generations,
            manifests: [planner.manifest]
        )
        let pack = planner.manifest.packs[0]
        let needed = planner.inodes(for: pack) + AvailableSpace.reservedInodes
        planner.freeInodes = needed - row.missing
        var plan = planner.plan(for: .event(.update, essentialOnly: false))
        #expect(plan.evictions.map(\.reason) == row.reasons ?? [])
        let refusal = Plan.Refusal.noInodes(needed: needed, available: needed - row.missing)
        #expect(
            plan.entries[0].decision
                == (row.reasons == nil ? .refuse(refusal) : .stage(.outdated(staged: 1)))
        )
        // The evictions may free less than the plan expects.
        let free = AvailableSpace(bytes: nil, inodes: needed - 1)
        let failure = StageError.noInodes(needed: needed, available: needed - 1)
        let expected: [PackID: StagingOutcome] =
            row.reasons == nil ? [:] : [pack.id: .failed(failure)]
        let refused = plan.refusePacks(beyond: free)
        #expect(refused == expected)
    }

    @Test func nothingGoesForAPackThatDoesNotFitInTheEnd() throws {
        var planner = try planner()
        planner.manifest.packs[0].installedSize = .mebibytes(100)
        planner.manifest.packs.append(try .of("small", .essential([.subsequentUpdate])))
        planner.freeSpace = Self.space - ByteCount(Int64(1))
        let plan = planner.plan(for: .event(.update, essentialOnly: false))
        #expect(plan.packsToStage.map(\.id.text) == ["small"])
        #expect(plan.evictions.map(\.reason) == [.previous])
    }

    @Test func packsOfTheEventAreNotEvictedForIt() throws {
        var planner = try planner()
        planner.freeSpace = Self.space - ByteCount(Int64(201))
        let plan = planner.plan(for: .event(.install, essentialOnly: false))
        #expect(plan.evictions == [])
        let one = planner.plan(for: .packs([try PackID("level"), try PackID("demand")]))
        #expect(one.evictions == [])
        planner.freeSpace = Self.space - ByteCount(Int64(101))
        let other = planner.plan(for: .packs([try PackID("level"), try PackID("demand")]))
        #expect(other.evictions.map(\.reason) == [.previous, .prefetch])
    }

    /// The quota, and the evicted packs; besides the version that the update replaces and 8 KiB of blocks, 400 bytes are staged.
    @Test(
        arguments: [
            (8592, []), (8591, [.previous]), (8392, [.previous, .onDemand]),
            (8292, [.previous, .onDemand, .prefetch]), (8291, nil),
        ] as [(Int64, [EvictionReason]?)]
    )
    func aQuotaCountsOnlyPacksThatStay(quota: Int64, reasons: [EvictionReason]?) throws {
        var planner = try planner()
        planner.quota = ByteCount(quota)
        let plan = planner.plan(for: .event(.update, essentialOnly: false))
        #expect(plan.evictions.map(\.reason) == reasons ?? [])
        let refusal = Plan.Refusal.exceedsQuota(
            needed: ByteCount(Int64(8192)),
            remaining: ByteCount(quota - 400)
        )
        #expect(
            plan.entries[0].decision
                == (reasons == nil ? .refuse(refusal) : .stage(.outdated(staged: 1)))
        )
    }

    /// The size of the version that an update replaces, the quota, and whether the update is staged.
    ///
    /// The update takes 8292 bytes.
    @Test(
        arguments: [
            (8292, 0, true), (9000, 0, true), (8291, 8291, false), (8291, 8292, true),
        ] as [(Int64, Int64, Bool)],
        [false, true]
    )
    func anUpdateThatDoesNotGrowIsNotRefused(
        row: (size: Int64, quota: Int64, isStaged: Bool),
        isRead: Bool
    ) throws {
        var planner = try planner()
        var current = try StoredGeneration.of("level", .current, 1, isLeased: isRead)
        current.size = ByteCount(row.size)
        // Space that only readers keep in use does not count.
        var left = try StoredGeneration.of("level", .obsolete, 1, isLeased: true)
        left.size = .mebibytes(1)
        planner.evictionPolicy = EvictionPolicy(
            generations: [current, left],
            manifests: [planner.manifest]
        )
        planner.quota = ByteCount(row.quota)
        let plan = planner.plan(for: .event(.update, essentialOnly: false))
        let refusal = Plan.Refusal.exceedsQuota(needed: ByteCount(Int64(1)), remaining: .zero)
        #expect(
            plan.entries[0].decision
                == (row.isStaged ? .stage(.outdated(staged: 1)) : .refuse(refusal))
        )
    }

    /// The version of the application, and whether a pack that requires 2 or later is staged.
    @Test(arguments: [(nil, true), ("2.0", true), ("10", true), ("1.9", false), ("x", false)])
    func aPackIsForVersionsOfTheApplication(installed: String?, isStaged: Bool) throws {
        var planner = try planner()
        let id = try PackID("level")
        planner.manifest.packs[0].applicationVersion = try VersionRequirement(">=2")
        planner.applicationVersion = installed
        let named = planner.plan(for: .packs([id])).entries.first { $0.pack.id == id }?.decision
        let event = planner.plan(for: .event(.update, essentialOnly: true)).entries.first?.decision
        let found = installed ?? ""
        #expect(
            named
                == (isStaged
                    ? .stage(.outdated(staged: 1))
                    : .refuse(.otherVersion(required: ">=2", installed: found)))
        )
        #expect(
            event
                == (isStaged
                    ? .stage(.outdated(staged: 1))
                    : .skip(.otherVersion(required: ">=2", installed: found)))
        )
        planner.staged[id] = nil
        #expect(planner.request == (isStaged ? .install : .update))
    }

    /// The result of each selection for a pack that is pinned to version 1.
    @Test func aPinnedPackIsLeftAndNotFetched() throws {
        var planner = try planner()
        let pin = Planner.PinnedVersion(version: 1, rolledBackFrom: 2)
        let id = try PackID("level")
        planner.pinned = [id: pin]
        for request in [ContentRequest.install, .update, .periodic] {
            let plan = planner.plan(for: .event(request, essentialOnly: true))
            #expect(plan.entries.first?.decision == .skip(.pinned(pin)))
        }
        for selection in [PackSelection.packs([id]), .repair([id])] {
            let plan = planner.plan(for: selection)
            #expect(plan.entries.first { $0.pack.id == id }?.decision == .refuse(.pinned(pin)))
        }
        planner.manifest.packs[0].version = 1
        planner.manifest.packs[0].archive?.digest = .sample(9)
        #expect(planner.plan(for: .packs([id])).entries.first?.decision == .skip(.upToDate))
        #expect(planner.plan(for: .repair([id])).packsToStage.map(\.id) == [id])
    }
}

extension StoredGeneration {
    /// A generation that takes 100 bytes.
    fileprivate static func of(
        _ id: String,
        _ role: Role,
        _ lastUsed: Int64,
        isLeased: Bool = false,
        _ isPinned: Bool = false
    ) throws -> StoredGeneration {
        StoredGeneration(
            id: try PackID(id),
            name: GenerationName(version: role == .current ? 2 : 1, digest: .sample(1)),
            role: role,
            size: ByteCount(Int64(100)),
            lastUsed: lastUsed,
            isLeased: isLeased,
            isPinned: isPinned
        )
    }
}

extension Pack {
    /// A pack with an archive of 100 bytes and one file of 100.
    fileprivate static func of(
        _ id: String,
        _ policy: DownloadPolicy,
        version: Int = 1,
        priority: Int = 0
    ) throws -> Pack {
        var pack = Pack(
            id: try PackID(id),
            version: version,
            policy: policy,
            archive: PackArchive(
                url: "\(id).tar",
                format: .tar,
                size: ByteCount(Int64(100)),
                digest: .sample(1)
            ),
            installedSize: ByteCount(Int64(100)),
            fileCount: 1
        )
        pack.priority = priority
        return pack
    }
}

extension Manifest {
    fileprivate static func of(_ packs: [Pack]) throws -> Manifest {
        Manifest(application: try ApplicationID("net.example.game"), revision: 1, packs: packs)
    }
}
