import StageTesting
import Testing

@testable import StageSystem

struct NetworkEventTests {
    private static func bytes<Value: FixedWidthInteger & UnsignedInteger>(
        _ value: Value
    ) -> [UInt8] {
        (0..<MemoryLayout<Value>.size).map { index in
            UInt8(truncatingIfNeeded: value.littleEndian >> (8 * index))
        }
    }

    private static func padded(_ parts: [[UInt8]]) -> [UInt8] {
        let bytes = Array(parts.joined())
        return bytes + [UInt8](repeating: 0, count: (4 - bytes.count % 4) % 4)
    }

    private static func message(_ type: UInt16, _ body: [UInt8]) -> [UInt8] {
        let rest = [UInt8](repeating: 0, count: 10)
        return padded([bytes(UInt32(16 + body.count)), bytes(type), rest, body])
    }

    private static func attribute(_ type: UInt16, _ value: [UInt8]) -> [UInt8] {
        padded([bytes(UInt16(4 + value.count)), bytes(type), value])
    }

    /// A link with the index 7; 0x40 is IFF_RUNNING.
    private static func link(
        _ type: UInt16 = 16,
        flags: UInt32 = 0x41,
        family: UInt8 = 0
    ) -> [UInt8] {
        let numbers = [bytes(UInt16(1)), bytes(UInt32(7)), bytes(flags), bytes(UInt32.max)]
        return message(type, Array(([[family, 0]] + numbers).joined()))
    }

    /// An address with a lifetime in seconds; the last bytes are the addresses of the peer and of this machine.
    private static func address(
        _ type: UInt16 = 20,
        family: UInt8 = 2,
        prefix: UInt8 = 24,
        flags: UInt8 = 0,
        scope: UInt8 = 0,
        link: UInt32 = 7,
        last: (UInt8, UInt8) = (1, 1),
        lifetime: UInt32 = 60
    ) -> [UInt8] {
        // The length of the name is not a multiple of four: the next attribute is aligned to one.
        let parts: [[UInt8]] = [
            [family, prefix, flags, scope], bytes(link), attribute(3, Array("eth0\0".utf8)),
            attribute(1, [198, 51, 100, last.0]), attribute(2, [198, 51, 100, last.1]),
            attribute(6, bytes(lifetime)),
        ]
        return message(type, Array(parts.joined()))
    }

    private static func route(
        _ type: UInt16 = 24,
        prefixes: (UInt8, UInt8) = (24, 0),
        service: UInt8 = 0,
        origin: UInt8 = 3,
        kind: UInt8 = 1,
        hosts: (UInt8, UInt8, UInt8) = (0, 0, 1),
        link: UInt32 = 7,
        metric: UInt32 = 100,
        table: UInt32 = 254
    ) -> [UInt8] {
        let parts: [[UInt8]] = [
            [2, prefixes.0, prefixes.1, service, 254, origin, 0, kind], bytes(UInt32(0)),
            attribute(15, bytes(table)), attribute(1, [203, 0, 113, hosts.0]),
            attribute(2, [203, 0, 114, hosts.1]), attribute(5, [192, 0, 2, hosts.2]),
            attribute(4, bytes(link)), attribute(6, bytes(metric)),
        ]
        return message(type, Array(parts.joined()))
    }

    private static func events(in datagram: [UInt8]) -> [NetworkEvent] {
        NetworkEvent.events(in: datagram[...])
    }

    @Test func messagesReportRunningStoppedAndRemovedLinks() {
        #expect(Self.events(in: Self.link()) == [.link(7, isRunning: true)])
        #expect(Self.events(in: Self.link(flags: 1)) == [.link(7, isRunning: false)])
        #expect(Self.events(in: Self.link(17)) == [.removedLink(7)])
        // An event about a port of a bridge.
        #expect(Self.events(in: Self.link(17, family: 7)) == [])
    }

    @Test func anAddressIsTheSameWithAnyLifetime() throws {
        let first = Self.events(in: Self.address())
        guard case .added(let entry)? = first.first else {
            Issue.record("\(first)")
            return
        }
        #expect(first == [.added(entry)])
        #expect(Self.events(in: Self.address(lifetime: 3600)) == first)
        #expect(Self.events(in: Self.address(21, flags: 0x40)) == [.removed(entry)])
        // Permanent.
        #expect(Self.events(in: Self.address(flags: 0x80)) == first)
        #expect(Self.events(in: Self.route()) != first)
        let others: [[UInt8]] = [
            Self.address(family: 10), Self.address(prefix: 25), Self.address(link: 8),
            Self.address(last: (2, 1)), Self.address(last: (1, 2)),
        ]
        for other in others { #expect(Self.events(in: other) != first, "\(other)") }
    }

    @Test func addressesOfThisMachineOrOneLinkAreLeftOutAndUncheckedOnesToo() {
        #expect(Self.events(in: Self.address(scope: 253)) == [])
        #expect(Self.events(in: Self.address(scope: 254)) == [])
        #expect(Self.events(in: Self.address(flags: 0x40)) == [])
        // Site-local.
        #expect(Self.events(in: Self.address(scope: 200)).count == 1)
    }

    @Test func aRouteIsItsDestinationAndItsWay() {
        let first = Self.events(in: Self.route())
        guard case .added(let entry)? = first.first else {
            Issue.record("\(first)")
            return
        }
        #expect(first == [.added(entry)])
        #expect(Self.events(in: Self.route(25)) == [.removed(entry)])
        // The route was set by another program.
        #expect(Self.events(in: Self.route(origin: 16)) == first)
        let others: [[UInt8]] = [
            Self.route(prefixes: (25, 0)), Self.route(prefixes: (24, 32)), Self.route(service: 8),
            Self.route(hosts: (1, 0, 1)), Self.route(hosts: (0, 1, 1)),
            Self.route(hosts: (0, 0, 2)), Self.route(link: 8), Self.route(metric: 200),
            Self.route(table: 100),
        ]
        for other in others { #expect(Self.events(in: other) != first, "\(other)") }
        // A local route, which each address has.
        #expect(Self.events(in: Self.route(kind: 2)) == [])
    }

    @Test func aDatagramThatIsCutOffIsALoss() {
        let messages = [Self.link(), Self.message(3, []), Self.address(), Self.route()]
        let datagram = Array(messages.joined())
        let all = Self.events(in: datagram)
        #expect(all.count == 3)
        var ends: Set<Int> = [0]
        for message in messages { ends.insert((ends.max() ?? 0) + message.count) }
        for count in 0...datagram.count {
            var events = Self.events(in: Array(datagram.prefix(count)))
            let isCut = events.last == .lost
            #expect(isCut == !ends.contains(count), "\(count) bytes")
            if isCut { events.removeLast() }
            #expect(events == Array(all.prefix(events.count)), "\(count) bytes")
        }
    }

    /// Messages begin at multiples of four bytes.
    @Test(arguments: 0..<4) func aMessageFollowsOneOfAnyLength(count: Int) {
        let first = Self.message(3, [UInt8](repeating: 1, count: count))
        #expect(Self.events(in: first + Self.link()) == [.link(7, isRunning: true)])
    }

    /// A length of zero would make the parser read the same message endlessly.
    @Test(arguments: 0..<16 as Range<UInt32>)
    func aMessageThatIsShorterThanAHeaderIsALoss(length: UInt32) {
        let message: [UInt8] = Self.bytes(length) + Self.message(3, []).dropFirst(4)
        #expect(Self.events(in: message) == [.lost])
    }

    @Test func aMessageWithoutItsFieldsIsALoss() {
        for type in [16, 20, 24] as [UInt16] {
            #expect(Self.events(in: Self.message(type, [2])) == [.lost])
        }
    }

    /// Netlink family NETLINK_ROUTE.
    @Test(.netlink(family: 0)) func listeningToTheNetworkWaitsForNothing() throws {
        let events = try NetworkEvents()
        _ = try events.takePending()
    }
}
