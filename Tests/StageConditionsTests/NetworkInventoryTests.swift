import StageSystem
import Testing

@testable import StageConditions

struct NetworkInventoryTests {
    private static let address = NetworkEntry([1])
    private static let route = NetworkEntry([2])

    /// Events, and whether each of them makes hosts reachable that were not.
    static let rows: [[(NetworkEvent, Bool)]] = [
        [(.added(address), true), (.added(route), true)],
        // The kernel may repeat an event.
        [(.added(address), true), (.added(address), false), (.added(address), false)],
        [(.added(address), true), (.removed(address), false), (.added(address), true)],
        [(.link(1, isRunning: true), true), (.link(1, isRunning: true), false)],
        [(.link(1, isRunning: true), true), (.link(2, isRunning: true), true)],
        [(.link(1, isRunning: false), false), (.link(1, isRunning: true), true)],
        [
            (.link(1, isRunning: true), true), (.removedLink(1), false),
            (.link(1, isRunning: true), true),
        ],
        // The kernel does not report the routes that a link loses.
        [(.added(route), true), (.link(1, isRunning: false), false), (.added(route), true)],
        [(.added(route), true), (.removedLink(1), false), (.added(route), true)],
        // A device without a network is searching for one.
        [
            (.link(1, isRunning: false), false), (.added(route), true),
            (.link(1, isRunning: false), false), (.added(route), false),
        ],
        [(.added(route), true), (.lost, true), (.added(route), true), (.lost, true)],
    ]

    @Test(arguments: rows.indices) func aNewNetworkCountsOnce(row: Int) {
        var inventory = NetworkInventory()
        let found = Self.rows[row].map { inventory.handle($0.0) }
        #expect(found == Self.rows[row].map { $0.1 })
    }

    @Test func aRouterMayHaveAnyNumberOfRoutes() {
        var inventory = NetworkInventory()
        for number in 0..<3 * UInt32(NetworkInventory.maximumCount) {
            let bytes = (0..<4).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) }
            let isNew = inventory.handle(.added(NetworkEntry(bytes)))
            #expect(isNew)
            let isNewLink = inventory.handle(.link(number, isRunning: true))
            #expect(isNewLink)
        }
    }
}
