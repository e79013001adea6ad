import FoundationEssentials
import Glibc
import StageContainer
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Stagings that a daemon records: a command or worker that continues one resumes where the previous one ended.
@Suite(.apart, .server, .directory, .timeLimit(.minutes(10)))
struct DaemonStagingTests {
    /// The process that downloads a part of a pack.
    enum Fetcher: CaseIterable, Sendable {
        case command
        case worker
    }

    /// The bytes that may be sent twice, because they were in transit when a process was killed.
    private let lost = 3 << 20

    /// The process that downloads the first part of a pack, and the one that downloads the rest.
    struct Order: Sendable {
        var first: Fetcher
        var second: Fetcher

        static let all = Fetcher.allCases.flatMap { first in
            Fetcher.allCases.map { Order(first: first, second: $0) }
        }
    }

    @Test(arguments: Order.all, StagingWorld.Kind.allCases)
    func aKilledStagingIsResumedByCommandOrWorker(
        _ order: Order,
        _ kind: StagingWorld.Kind
    ) async throws {
        let world = try await StagingWorld(kind)
        switch order.first {
        case .command: try await world.fetchKilled(afterMebibytes: 1)
        case .worker:
            try await withDaemon(world, ending: SIGKILL) { client in
                _ = try await world.ask(client)
                try await world.wait(forMebibytes: 1)
            }
        }
        #expect(try world.installed.staged() == [:])
        try world.speedUp()
        switch order.second {
        case .command:
            let ending = try await world.fetch()
            #expect(ending.status == 0, "\(ending)")
        case .worker:
            try await withDaemon(world) { client in
                if order.first == .command { _ = try await world.ask(client) }
                try await world.wait(forVersion: 1)
                try await poll("the session stays") { try await client.sessions().isEmpty }
            }
        }
        #expect(try world.installed.staged() == [world.pack: 1])
        #expect(world.bytesSent <= world.size + lost, "\(world.bytesSent)")
        let litter = try world.litter()
        #expect(litter == [])
    }

    @Test(arguments: StagingWorld.Kind.allCases)
    func aWorkerContinuesWhereAKilledCommandEnded(_ kind: StagingWorld.Kind) async throws {
        let world = try await StagingWorld(kind)
        try await withDaemon(world) { client in
            try await world.fetchKilled(afterMebibytes: 1)
            try await world.wait(forVersion: 1)
            try await poll("the session stays") { try await client.sessions().isEmpty }
            let tasks = try await client.tasks()
            #expect(tasks.isEmpty)
        }
        #expect(world.bytesSent <= world.size + lost, "\(world.bytesSent)")
        let litter = try world.litter()
        #expect(litter == [])
    }

    @Test(arguments: StagingWorld.Kind.allCases)
    func afterAnotherStartOfTheMachineTheDaemonContinuesByItself(
        _ kind: StagingWorld.Kind
    ) async throws {
        let world = try await StagingWorld(kind)
        try await withDaemon(world, ending: SIGKILL) { _ in
            try await world.fetchKilled(afterMebibytes: 1, speedingUp: false)
        }
        #expect(try world.installed.staged() == [:])
        try world.speedUp()
        try await withDaemon(world) { _ in try await world.wait(forVersion: 1) }
        #expect(world.bytesSent <= world.size + lost, "\(world.bytesSent)")
    }

    @Test(arguments: StagingWorld.Kind.allCases)
    func aPersonPausesResumesAndCancels(_ kind: StagingWorld.Kind) async throws {
        let world = try await StagingWorld(kind, sending: .slowly(128 << 10))
        try await withDaemon(world) { client in
            let id = try await world.ask(client)
            try await world.wait(forMebibytes: 1)
            #expect(try await world.installed.run("pause", "\(id)").status == 0)
            try await world.waitForSilence()
            let tasks = try await world.installed.run("tasks")
            #expect(tasks.output.contains("waits: it was paused"), "\(tasks)")
            #expect(tasks.output.contains("(\(world.pack))"), "\(tasks)")
            let why = try await world.installed.run("why", world.pack)
            #expect(why.output.contains("it was paused"), "\(why)")
            let count = world.bytesReceived
            #expect(try await world.installed.run("resume", "\(id)").status == 0)
            try await poll("it does not go on") { world.bytesReceived > count }
            #expect(try await world.installed.run("cancel", "\(id)").status == 0)
            try await poll("the session stays") { try await client.sessions().isEmpty }
        }
        #expect(try world.installed.staged() == [:])
    }

    @Test func aWorkerEndsWhenItsDaemonHas() async throws {
        let world = try await StagingWorld(.archive)
        try await withDaemon(world, ending: SIGKILL, sparesWorkers: true) { client in
            _ = try await world.ask(client)
            try await world.wait(forMebibytes: 1)
        }
        try await world.waitForSilence()
        #expect(try world.installed.staged() == [:])
        #expect(world.bytesReceived < world.size)
    }

    @Test func aPausedCommandReportsThePauseAfterTheDaemonRestarts() async throws {
        let world = try await StagingWorld(.archive)
        let (endings, ended) = AsyncStream.makeStream(of: Program.Ending.self)
        try await withThrowingTaskGroup(of: Void.self) { group in
            let (starts, begun) = AsyncStream.makeStream(of: Void.self)
            group.addTask {
                for await _ in starts { break }
                ended.yield(try await world.fetch())
                ended.finish()
            }
            try await withDaemon(world, ending: SIGKILL) { client in
                begun.yield()
                try await world.wait(forMebibytes: 1)
                let id = try #require(try await client.tasks().first?.id)
                #expect(try await world.installed.run("pause", "\(id)").status == 0)
                try await world.waitForSilence()
            }
            try await withDaemon(world) { client in
                let id = try #require(try await client.tasks().first?.id)
                #expect(try await client.task(id).pendingReasons == [PendingReason(.pausedByUser)])
                try world.speedUp()
                #expect(try await world.installed.run("resume", "\(id)").status == 0)
                for await ending in endings { #expect(ending.status == 0, "\(ending)") }
                try await world.wait(forVersion: 1)
                try await poll("the session stays") { try await client.sessions().isEmpty }
            }
            try await group.waitForAll()
        }
        #expect(world.bytesSent <= world.size + lost, "\(world.bytesSent)")
    }

    @Test func aCommandThatIsCancelledEnds() async throws {
        let world = try await StagingWorld(.archive)
        try await withDaemon(world) { client in
            let ending = try await world.fetch { _ in
                try await world.wait(forMebibytes: 1)
                let id = try #require(try await client.tasks().first?.id)
                #expect(try await world.installed.run("cancel", "\(id)").status == 0)
            }
            #expect(ending.status == 130, "\(ending)")
            #expect(ending.error.contains("it was cancelled with 'stagepack cancel'"), "\(ending)")
            let tasks = try await client.tasks()
            #expect(tasks.isEmpty)
        }
        #expect(try world.installed.staged() == [:])
    }

    @Test func aCommandThatIsPausedWaitsAndContinues() async throws {
        let world = try await StagingWorld(.archive)
        try await withDaemon(world) { client in
            let ending = try await world.fetch { _ in
                try await world.wait(forMebibytes: 1)
                let id = try #require(try await client.tasks().first?.id)
                #expect(try await world.installed.run("pause", "\(id)").status == 0)
                try await world.waitForSilence()
                try world.speedUp()
                #expect(try await world.installed.run("resume", "\(id)").status == 0)
            }
            #expect(ending.status == 0, "\(ending)")
        }
        #expect(try world.installed.staged() == ["aurora": 1])
        #expect(world.bytesSent <= world.size + lost, "\(world.bytesSent)")
    }

    @Test(arguments: StagingWorld.Kind.allCases)
    func bytesThatACommandReceivesAreShownWhileItRuns(_ kind: StagingWorld.Kind) async throws {
        let gate = Gate()
        let world = try await StagingWorld(kind, sending: .held(gate))
        try await withDaemon(world) { client in
            let program = world.installed.world.program
            let arguments = ["load", world.pack, "--app", "net.example.wallpaper"]
            let ending = try await program.run(arguments) { _ in
                let watched = try await client.watch()
                try await poll("no bytes are shown") {
                    let list = try await world.installed.run("tasks", "--json")
                    struct Listing: Decodable { var tasks: [TransferTask] }
                    let listing = try ControlFormat.decode(
                        Listing.self,
                        from: Data(list.output.utf8)
                    )
                    guard let task = listing.tasks.first, let size = task.bytesExpected else {
                        return false
                    }
                    #expect(task.state == .running)
                    return task.bytesReceived > .zero && task.bytesReceived < size
                }
                for try await event in watched where event.bytesReceived ?? .zero > .zero { break }
                gate.open()
            }
            #expect(ending.status == 0, "\(ending)")
        }
        #expect(try world.installed.staged() == [world.pack: 1])
    }

    @Test(arguments: StagingWorld.Kind.allCases)
    func aCommandTakesOverFromTheWorker(_ kind: StagingWorld.Kind) async throws {
        let world = try await StagingWorld(kind)
        try await withDaemon(world) { client in
            try await world.fetchKilled(afterMebibytes: 1, speedingUp: false)
            let before = try #require(try await client.tasks().first?.id)
            try world.speedUp()
            let ending = try await world.fetch { _ in
                try await poll("the worker keeps it") {
                    try await client.tasks().map(\.id).allSatisfy { $0 != before }
                }
            }
            #expect(ending.status == 0, "\(ending)")
            let tasks = try await client.tasks()
            #expect(tasks.isEmpty)
        }
        #expect(try world.installed.staged() == [world.pack: 1])
        #expect(world.bytesSent <= world.size + 2 * lost, "\(world.bytesSent)")
        let litter = try world.litter()
        #expect(litter == [])
    }

    @Test func aConfinedProcessHasRegisteredApplicationsStagedIfItIsRoots() async throws {
        let world = try await StagingWorld(.archive)
        try await withDaemon(world) { client in
            try await world.fetchKilled(
                afterMebibytes: 1,
                by: ["/usr/bin/setpriv", "--no-new-privs"]
            )
            guard geteuid() == 0 else {
                // A worker would have rights that the user's process lacks, so no worker is started.
                let sessions = try await client.sessions()
                #expect(sessions.isEmpty)
                return
            }
            try await world.wait(forVersion: 1)
        }
    }

    @Test func aTemporaryFailureIsRetriedAndItsReasonShown() async throws {
        let world = try await StagingWorld(.archive)
        let server = world.installed.world.server
        let path = "/packs/aurora-1.tar.zst"
        let content = try SamplePack.large(try .aurora, version: 1, mebibytes: 8).archive
        server.answer(path, with: .status(511))
        try await withDaemon(world) { client in
            let ending = try await world.fetch()
            #expect(ending.status == 23, "\(ending)")
            let first = try await client.tasks().first
            let task = try #require(first)
            #expect(task.state == .waiting)
            try await poll("it does not wait for the portal") {
                try await client.task(task.id).pendingReasons.map(\.kind) == [.portal]
            }
            let why = try await world.installed.run("why", "aurora")
            #expect(
                why.output.contains("a login page of the network intercepts downloads"),
                "\(why)"
            )
            server.answer(path, with: .content(content))
            var change = TransferChange()
            change.promotes = true
            try await client.change(task.id, by: change)
            try await world.wait(forVersion: 1)
        }
    }

    /// The daemon repeats the order of a failed command: the attempts together count as one failed run.
    @Test func attemptsOfTheDaemonAreOneFailedRun() async throws {
        let world = try await StagingWorld(.archive)
        let server = world.installed.world.server
        let path = "/packs/aurora-1.tar.zst"
        server.answer(path, with: .status(403))
        try await withDaemon(world) { client in
            let ending = try await world.fetch()
            #expect(ending.status == 21, "\(ending)")
            let id = try #require(try await client.tasks().first?.id)
            let count = server.requests(for: path).count
            var change = TransferChange()
            change.promotes = true
            try await client.change(id, by: change)
            try await poll("no worker begins") { server.requests(for: path).count > count }
            try await poll("the worker does not end") {
                try await client.task(id).state == .waiting
            }
            let entry = try #require(try world.installed.history()?.packs.first)
            #expect(entry.failures == 1 && entry.problem != nil, "\(entry)")
        }
    }

    /// The line of a hook names the transfer, since the daemon does not wait for the periodic run.
    @Test func aHookNamesTheTransferThatContinues() async throws {
        var installed = try await Installed()
        var pack = try SamplePack.small(.aurora)
        pack.pack.policy = .essential([.firstInstallation])
        try installed.world.publish(pack)
        installed.world.server.answer(pack.path, with: .status(403))
        try await withDaemon(&installed) { installed, client in
            let hook = try await installed.run("prefetch", "--all", "--hook")
            let id = try #require(try await client.tasks().first?.id)
            #expect(
                hook.output.hasSuffix("status 403; the daemon continues it as transfer \(id)\n"),
                "\(hook)"
            )
        }
    }

    /// A package manager must not wait for a person.
    @Test func aHookReportsWhatAPersonPausesAndEnds() async throws {
        let gate = Gate()
        defer { gate.open() }
        var installed = try await Installed()
        var pack = try SamplePack.large(.aurora, version: 1, mebibytes: 8)
        pack.pack.policy = .essential([.firstInstallation])
        try installed.world.publish([pack]) { $0.held(after: 1 << 20, until: gate) }
        let path = pack.path
        try await withDaemon(&installed) { installed, client in
            let arguments = ["prefetch", "--all", "--hook", "--deadline", "100"]
            let hook = try await installed.world.program.run(arguments) { _ in
                try await poll("it asks for nothing") {
                    installed.world.server.counts(for: path).requests > 0
                }
                let id = try #require(try await client.tasks().first?.id)
                #expect(try await installed.run("pause", "\(id)").status == 0)
            }
            let line = "0 staged, 1 waiting (it was paused); the next periodic run retries\n"
            #expect(hook.output.hasSuffix(": \(line)"), "\(hook)")
            let reasons = try await client.tasks().map(\.pendingReasons)
            #expect(reasons == [[PendingReason(.pausedByUser)]])
        }
    }

    @Test func aPackThatDoesNotFitWaitsForTheDisk() async throws {
        var installed = try await Installed()
        var pack = try SamplePack.small(.aurora)
        pack.pack.installedSize = ByteCount(1 << 40)
        try installed.world.publish(pack)
        try await withDaemon(&installed) { installed, client in
            let id = try await client.stage(["aurora"], of: installed)
            try await poll("it does not wait for the disk") {
                try await client.task(id).pendingReasons.map(\.kind) == [.disk]
            }
            for command in ["tasks", "why"] {
                let ending = try await installed.run(command)
                #expect(ending.output.contains("waits: the disk is full, until "), "\(ending)")
                #expect(ending.output.contains("not enough space"), "\(ending)")
            }
        }
        #expect(try installed.staged() == [:])
    }
}

/// Runs a daemon beside `body`; SIGKILL also kills its workers, as a failure of the machine would.
func withDaemon(
    _ world: StagingWorld,
    ending: Int32 = SIGTERM,
    sparesWorkers: Bool = false,
    bus: String = "unix:path=/nowhere",
    _ body: @escaping @Sendable (ControlClient) async throws -> Void
) async throws {
    var installed = world.installed
    try await withDaemon(
        &installed,
        ending: ending,
        sparesWorkers: sparesWorkers,
        bus: bus
    ) { _, client in
        try await body(client)
    }
}

/// Stagings that wait for network and power.
@Suite(.apart, .server, .directory, .mockBus, .timeLimit(.minutes(5)))
struct PatientStagingTests {
    private let bus: MockBus

    init() throws {
        bus = try .required()
        try bus.startWithoutRestrictions()
    }

    /// The condition that prevents a periodic run from updating.
    enum Condition: CaseIterable, Sendable {
        case metered
        case battery
        case offline
        case portal

        /// The reason as 'prefetch', 'tasks' and 'why' print it.
        var words: String {
            switch self {
            case .metered: "the network is metered"
            case .battery: "the machine runs on its battery"
            case .offline: "there is no network"
            case .portal: "a login page of the network intercepts downloads"
            }
        }
    }

    private func set(_ condition: Condition, _ holds: Bool) throws {
        switch condition {
        case .metered: try bus.set("Metered", of: .networkManager, to: .number(holds ? 1 : 2))
        case .battery: try bus.set("OnBattery", of: .power, to: .flag(holds))
        case .offline:
            try bus.set("Connectivity", of: .networkManager, to: .number(holds ? 1 : 4))
        case .portal:
            try bus.set("Connectivity", of: .networkManager, to: .number(holds ? 2 : 4))
        }
    }

    @Test(arguments: Condition.allCases, StagingWorld.Kind.allCases)
    func aPeriodicRunLeavesUpdatesToTheDaemon(
        _ condition: Condition,
        _ kind: StagingWorld.Kind
    ) async throws {
        let world = try await StagingWorld(kind, sending: .slowly(64 << 20))
        #expect(try await world.fetch().status == 0)
        try await world.publish(version: 2)
        try set(condition, true)
        let count = world.bytesSent
        try await withDaemon(world, bus: bus.address) { client in
            let arguments = ["--all", "--event", "periodic", "--progress", "none"]
            let ending = try await world.installed.world.program.run(["prefetch"] + arguments)
            #expect(ending.status == 0, "\(ending)")
            #expect(ending.output.contains("1 waiting (\(condition.words)"), "\(ending)")
            let tasks = try await world.installed.run("tasks")
            #expect(tasks.output.contains("waits: \(condition.words)"), "\(tasks)")
            let why = try await world.installed.run("why", world.pack)
            #expect(why.output.contains("waiting, \(condition.words)"), "\(why)")
            #expect(why.output.contains("waits: \(condition.words)"), "\(why)")
            #expect(world.bytesSent == count)
            // A second run replaces the first one.
            let again = try await world.installed.world.program.run(["prefetch"] + arguments)
            #expect(again.status == 0, "\(again)")
            let count = try await client.tasks().count
            #expect(count == 1)
            try set(condition, false)
            try await world.wait(forVersion: 2)
            try await poll("the session stays") { try await client.sessions().isEmpty }
        }
    }

    @Test func aTransferThatAPersonPausedStaysPausedInPeriodicRuns() async throws {
        let world = try await StagingWorld(.archive)
        try world.speedUp()
        #expect(try await world.fetch().status == 0)
        // The server sends this version slowly.
        try await world.publish(version: 2)
        let program = world.installed.world.program
        let arguments = ["prefetch", "--all", "--event", "periodic", "--progress", "none"]
        try await withDaemon(world, bus: bus.address) { client in
            // The paused run ends, since other applications of the timer must not wait for a person.
            let ending = try await program.run(arguments) { _ in
                try await world.wait(forMebibytes: 1)
                let id = try #require(try await client.tasks().first?.id)
                #expect(try await world.installed.run("pause", "\(id)").status == 0)
            }
            #expect(ending.status == 0, "\(ending)")
            #expect(ending.output.contains("1 waiting (it was paused)"), "\(ending)")
            let first = try #require(try await client.tasks().first?.id)
            let count = world.bytesReceived
            let again = try await program.run(arguments)
            #expect(again.status == 0, "\(again)")
            #expect(again.output.contains("1 waiting (it was paused)"), "\(again)")
            let why = try await world.installed.run("why", world.pack)
            #expect(why.output.contains("waiting, it was paused"), "\(why)")
            let tasks = try await client.tasks()
            #expect(tasks.map(\.pendingReasons) == [[PendingReason(.pausedByUser)]])
            let second = try #require(tasks.first?.id)
            #expect(second != first)
            #expect(world.bytesReceived == count)
            try world.speedUp()
            #expect(try await world.installed.run("resume", "\(second)").status == 0)
            try await world.wait(forVersion: 2)
            try await poll("the session stays") { try await client.sessions().isEmpty }
        }
    }

    @Test func aPackThatAPersonWaitsForIsFetchedUnderAnyConditions() async throws {
        let world = try await StagingWorld(.archive, sending: .slowly(64 << 20))
        try set(.metered, true)
        try set(.battery, true)
        try await withDaemon(world, bus: bus.address) { _ in
            let ending = try await world.fetch()
            #expect(ending.status == 0, "\(ending)")
        }
        #expect(try world.installed.staged() == ["aurora": 1])
    }

    /// A transfer's description is limited, and so contains only some of the packs' identifiers.
    @Test func whyKnowsThatAPackBeyondTheLimitOfADescriptionWaits() async throws {
        var installed = try await Installed()
        installed.allowDaemon()
        let ids = try (10..<40)
            .map { try PackID("\($0)" + String(repeating: "x", count: 100)) }
        let policy = DownloadPolicy.prefetch([.firstInstallation, .subsequentUpdate])
        try installed.world.publish(try ids.map { try SamplePack.small($0, policy: policy) })
        try set(.metered, true)
        try await withDaemon(&installed, bus: bus.address) { installed, client in
            let arguments = ["prefetch", "--all", "--event", "periodic", "--progress", "none"]
            let ending = try await installed.world.program.run(arguments)
            #expect(ending.status == 0, "\(ending)")
            let description = try #require(try await client.tasks().first?.request.description)
            #expect(description.hasSuffix(" \(ids[18]) …"), "\(description)")
            for id in [ids[0], ids[18], ids[19], ids[29]] {
                let why = try await installed.run("why", id.text)
                #expect(why.output.contains("Transfers that wait:"), "\(why)")
            }
            let why = try await installed.run("why", "10")
            #expect(why.status == 13, "\(why)")
        }
    }

    @Test func aWorkerStopsWhenTheNetworkBecomesMetered() async throws {
        let world = try await StagingWorld(.archive)
        try await withDaemon(world, bus: bus.address) { client in
            let id = try await client.stage([world.pack], of: world.installed) {
                $0.conditions = UpdateConditions()
            }
            try await world.wait(forMebibytes: 1)
            try set(.metered, true)
            try await poll { try await client.task(id).pendingReasons.map(\.kind) == [.metered] }
            try await world.waitForSilence()
            #expect(world.bytesReceived < world.size)
            try world.speedUp()
            try set(.metered, false)
            try await world.wait(forVersion: 1)
        }
        #expect(world.bytesSent <= world.size + (3 << 20), "\(world.bytesSent)")
    }
}
