import StageModel
import StageTesting
import Testing

/// Servers that misbehave: each run stages the right content or reports the fault clearly, in bounded
/// time and memory.
@Suite(.waiting, .server, .directory, .timeLimit(.minutes(10)))
struct MisbehaviourTests {
    /// Limits the number of concurrent rows, so that they do not delay each other.
    private static let turnstile = Turnstile(width: 6)

    @Test(arguments: Misbehaviour.catalogue.flatMap(\.rows))
    func theContentIsRightOrTheFailureIsNamed(_ row: MisbehaviourRow) async throws {
        try await Self.turnstile.pass {
            let world = try await MisbehaviourWorld(row)
            let run = try await world.run(row.misbehaviour.options)
            try world.expect(row.outcome, of: run, row)
            #expect(run.duration < .seconds(60), "\(run)")
        }
    }

    @Test(arguments: Misbehaviour.delays.flatMap(\.rows))
    func aDelayEndsByItself(_ row: MisbehaviourRow) async throws {
        let world = try await MisbehaviourWorld(row)
        let run = try await world.run(row.misbehaviour.options)
        try world.expect(row.outcome, of: run, row)
        #expect(run.duration < .seconds(180), "\(run)")
    }

    @Test(arguments: Misbehaviour.delays.flatMap(\.rows).filter { $0.resource != .delta })
    func aDeadlineNamesTheServer(_ row: MisbehaviourRow) async throws {
        try await Self.turnstile.pass {
            let world = try await MisbehaviourWorld(row)
            var (run, limit) = (try await world.run(["--deadline", "5"]), 5)
            // On a busy machine, the request may begin only after a short deadline.
            while limit < 80, !run.ending.error.contains("'http") {
                limit *= 4
                run = try await world.run(["--deadline", "\(limit)"])
            }
            try world.expect(.fails(.late, "the deadline passed"), of: run, row)
            #expect(run.duration < .seconds(limit + 25), "\(run)")
        }
    }
}

/// Limits the number of tasks that work at the same time.
actor Turnstile {
    private var free: Int
    private var waiting: [CheckedContinuation<Void, Never>] = []

    init(width: Int) { free = width }

    /// Runs `body` once fewer than the limited number of tasks work.
    nonisolated func pass(_ body: @Sendable () async throws -> Void) async throws {
        await enter()
        do {
            try await body()
        } catch {
            await leave()
            throw error
        }
        await leave()
    }

    private func enter() async {
        if free > 0 {
            free -= 1
        } else {
            await withCheckedContinuation { waiting.append($0) }
        }
    }

    private func leave() {
        if waiting.isEmpty { free += 1 } else { waiting.removeFirst().resume() }
    }
}
