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

    /// An address with a lifetime in seconds.
    private static func address(
        _ type: UInt16 = 20,
        last: UInt8 = 1,
        flags: UInt8 = 0,
        scope: UInt8 = 0,
        lifetime: UInt32 = 60
    ) -> [UInt8] {
        let parts: [[UInt8]] = [
            [2, 24, flags, scope], bytes(UInt32(7)), attribute(1, [198, 51, 100, last]),
            attribute(3, Array("eth0\0".utf8)), attribute(6, bytes(lifetime)),
        ]
        return message(type, Array(parts.joined()))
    }

    private static func route(
        _ type: UInt16 = 24,
        gateway: UInt8 = 1,
        kind: UInt8 = 1
    ) -> [UInt8] {
        let parts: [[UInt8]] = [
            [2, 24, 0, 0, 254, 3, 0, kind], bytes(UInt32(0)), attribute(1, [203, 0, 113, 0]),
            attribute(5, [192, 0, 2, gateway]), attribute(4, bytes(UInt32(7))),
        ]
        return message(type, Array(parts.joined()))
    }

    private static func events(in datagram: [UInt8]) -> [NetworkEvent] {
        NetworkEvent.events(in: datagram[...])
    }

    @Test func aLinkRunsOrDoesNotOrIsGone() {
        #expect(Self.events(in: Self.link()) == [.link(7, isRunning: true)])
        #expect(Self.events(in: Self.link(flags: 1)) == [.link(7, isRunning: false)])
        #expect(Self.events(in: Self.link(17)) == [.removedLink(7)])
        // The port of a bridge.
        #expect(Self.events(in: Self.link(17, family: 7)) == [])
    }

    @Test func anAddressIsTheSameWhateverItsLifetime() throws {
        let first = Self.events(in: Self.address())
        guard case .added(let entry)? = first.first else {
            Issue.record("\(first)")
            return
        }
        #expect(first == [.added(entry)])
        #expect(Self.events(in: Self.address(lifetime: 3600)) == first)
        #expect(Self.events(in: Self.address(21, flags: 0x40)) == [.removed(entry)])
        #expect(Self.events(in: Self.address(last: 2)) != first)
        #expect(Self.events(in: Self.route()) != first)
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
        #expect(Self.events(in: Self.route(gateway: 2)) != first)
        // A local one, as each address has.
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

    @Test func aMessageWithoutItsFieldsIsALoss() {
        for type in [16, 20, 24] as [UInt16] {
            #expect(Self.events(in: Self.message(type, [2])) == [.lost])
        }
    }

    /// If the system refuses the socket, there is nothing to test.
    @Test func listeningToTheNetworkWaitsForNothing() throws {
        guard let events = try? NetworkEvents() else { return }
        _ = try events.takePending()
    }
}
