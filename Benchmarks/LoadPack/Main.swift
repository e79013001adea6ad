import FoundationEssentials
import Glibc
import StagePack
import SystemPackage

/// Times `loadPack` of a staged pack beside stat(2) of its directory, in one process.
///
/// Prints nanoseconds a call as JSON: the median of rounds that take turns.
@main
enum LoadPackBenchmark {
    private static let rounds = 41
    private static let callsInRound = 2000

    static func main() async throws {
        let arguments = CommandLine.arguments
        guard arguments.count == 3 else {
            print("usage: LoadPackBenchmark CONTAINER PACK")
            exit(64)
        }
        let (container, id) = (FilePath(arguments[1]), arguments[2])
        let store = PackStore(containers: [container])
        let path = try await store.loadPack(id).path
        var stats: [Double] = []
        var loads: [Double] = []
        var firstLoads: [Double] = []
        for _ in 0..<rounds {
            stats.append(try time(callsInRound) { try status(of: path) })
            loads.append(try await time(callsInRound) { _ = try await store.loadPack(id) })
            firstLoads.append(
                try await time(callsInRound / 20) {
                    _ = try await PackStore(containers: [container]).loadPack(id)
                }
            )
        }
        let (stat, load, first) = (median(stats), median(loads), median(firstLoads))
        print(#"{"stat": \#(stat), "loadPack": \#(load), "firstLoadPack": \#(first)}"#)
    }

    private static func status(of path: String) throws {
        var status = stat()
        guard unsafe stat(path, &status) == 0 else { throw Errno(rawValue: errno) }
    }

    /// The time of one call, in nanoseconds.
    private static func time(_ count: Int, _ call: () throws -> Void) rethrows -> Double {
        let start = ContinuousClock.now
        for _ in 0..<count { try call() }
        return (ContinuousClock.now - start) / .nanoseconds(count)
    }

    /// The time of one call, in nanoseconds.
    private static func time(_ count: Int, _ call: () async throws -> Void) async rethrows -> Double
    {
        let start = ContinuousClock.now
        for _ in 0..<count { try await call() }
        return (ContinuousClock.now - start) / .nanoseconds(count)
    }

    private static func median(_ values: [Double]) -> Int {
        Int(values.sorted()[values.count / 2])
    }
}
