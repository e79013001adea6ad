import StageTesting
import StageWebSocket
import Testing

@Suite struct MachineTests {
    @Test func aClientMasksAsInTheExampleOfTheStandard() throws {
        let expected: [UInt8] = [
            0x81, 0x85, 0x37, 0xFA, 0x21, 0x3D, 0x7F, 0x9F, 0x4D, 0x51, 0x58,
        ]
        #expect(try sent([.text("Hello")]) == expected)
        #expect(outcome(of: [expected]).events == [.message(.text("Hello"))])
    }

    @Test func aPingBetweenFragmentsIsAnsweredAtOnce() {
        let bytes =
            frame(0x01, Array("Hel".utf8)) + frame(0x89, [1, 2]) + frame(0x80, [0x6C, 0x6F])
        let expected = Outcome(
            events: [.ping([1, 2]), .message(.text("Hello"))],
            output: [0x8A, 2, 1, 2]
        )
        #expect(outcome(of: [bytes]) == expected)
    }

    @Test(
        arguments: [125, 126, 127, 65535, 65536, 100_000]
    )
    func aMessageOfAnyLengthArrives(count: Int) throws {
        var generator = SeededGenerator(seed: UInt64(count))
        let message = WebSocketMessage.binary(
            (0..<count).map { _ in UInt8.random(in: 0...255, using: &generator) }
        )
        #expect(outcome(of: [try sent([message])]).events == [.message(message)])
        let fromServer = try sent([message], by: .server)
        #expect(outcome(of: [fromServer], at: client).events == [.message(message)])
    }

    static let faults: [([UInt8], WebSocketError)] = [
        ([0xA1, 0x80, 0, 0, 0, 0], .frame(.reservedBits)),
        ([0x91, 0x80, 0, 0, 0, 0], .frame(.reservedBits)),
        ([0xC1, 0x80, 0, 0, 0, 0], .frame(.reservedBits)),
        ([0xC9, 0x80, 0, 0, 0, 0], .frame(.reservedBits)),
        ([0x83, 0x80, 0, 0, 0, 0], .frame(.reservedOpcode(3))),
        ([0x8F, 0x80, 0, 0, 0, 0], .frame(.reservedOpcode(15))),
        ([0x09, 0x80, 0, 0, 0, 0], .frame(.fragmentedControl)),
        ([0x89, 0xFE, 0, 126, 0, 0, 0, 0], .frame(.longControl)),
        ([0x81, 0x00], .frame(.missingMask)),
        ([0x82, 0xFE, 0, 125, 0, 0, 0, 0], .frame(.length)),
        ([0x82, 0xFF, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 0, 0], .frame(.length)),
        ([0x82, 0xFF, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0], .frame(.length)),
        (frame(0x80), .frame(.unexpectedContinuation)),
        (frame(0x01) + frame(0x81), .frame(.interruptedMessage)),
        (frame(0x88, [3]), .frame(.closePayload)),
        (frame(0x88, [3, 0xED]), .frame(.closeCode(1005))),
        (frame(0x88, [3, 0xF7]), .frame(.closeCode(1015))),
        (frame(0x88, [0x13, 0x88]), .frame(.closeCode(5000))),
        (frame(0x88, [3, 0xE8, 0xFF]), .invalidText),
        (frame(0x81, [0xC3]), .invalidText),
        (frame(0x81, [0xED, 0xA0, 0x80]), .invalidText),
    ]

    @Test(arguments: faults)
    func aFaultClosesTheConnectionWithItsCode(bytes: [UInt8], error: WebSocketError) {
        let expected = Outcome(
            events: [.failure(error)],
            output: closeFrame(error),
            isFinished: true
        )
        #expect(outcome(of: [bytes + frame(0x82, [1])]) == expected)
    }

    @Test func aMaskedFrameOfAServerIsAFault() {
        let bytes = frame(0x82, [1])
        #expect(outcome(of: [bytes], at: client).events == [.failure(.frame(.unexpectedMask))])
    }

    @Test func textIsRefusedAtItsFirstWrongByte() {
        // The frame announces more bytes than arrive.
        let bytes: [UInt8] = [0x81, 0x8A, 0, 0, 0, 0, 0xCE, 0xBA, 0xF4, 0x90]
        #expect(outcome(of: [bytes]).events == [.failure(.invalidText)])
        #expect(outcome(of: [bytes.dropLast()]).events == [])
    }

    @Test func aCharacterMayBeCutByFragments() {
        let bytes = frame(0x01, [0xE2, 0x82]) + frame(0x00) + frame(0x80, [0xAC])
        #expect(outcome(of: [bytes]).events == [.message(.text("€"))])
        // The first code points of three and of four bytes, whose second byte has the narrowest range.
        let first = frame(0x81, [0xE0, 0xA0, 0x80, 0xF0, 0x90, 0x80, 0x80])
        #expect(outcome(of: [first]).events == [.message(.text("\u{800}\u{10000}"))])
    }

    @Test func aCloseIsAnsweredAndEndsTheEvents() {
        let bytes = frame(0x88, [3, 0xE8] + Array("bye".utf8)) + frame(0x82, [1])
        let expected = Outcome(
            events: [.close(WebSocketClose(code: .normalClosure, reason: "bye"))],
            output: [0x88, 2, 3, 0xE8],
            isFinished: true
        )
        #expect(outcome(of: [bytes]) == expected)
        #expect(outcome(of: [frame(0x88)]).output == [0x88, 0])
    }

    @Test func nothingIsSentAfterAClose() throws {
        var machine = WebSocketMachine(role: .server)
        machine.close(WebSocketClose(code: .goingAway, reason: String(repeating: "ü", count: 99)))
        machine.close(WebSocketClose(code: .normalClosure))
        let output = machine.takeOutput()
        #expect(output.count == 2 + 2 + 122)
        #expect(throws: WebSocketError.closed) { try machine.send(.text("late")) }
        #expect(throws: WebSocketError.closed) { try machine.ping() }
        // Messages in transit are still delivered, and pings are not answered.
        let late = frame(0x82, [7]) + frame(0x89) + frame(0x88)
        machine.receive(late.span)
        var events: [WebSocketEvent] = []
        while let event = machine.nextEvent() { events.append(event) }
        #expect(events == [.message(.binary([7])), .ping([]), .close(WebSocketClose())])
        let (isFinished, rest) = (machine.isFinished, machine.takeOutput())
        #expect(isFinished && rest.isEmpty)
    }

    @Test func limitsAreOfTheHeaderAlone() {
        let limits = WebSocketLimits(messageSize: 10, frameSize: 8)
        let fits = frame(0x02, [UInt8](repeating: 1, count: 8)) + frame(0x80, [1, 1])
        let ten = WebSocketMessage.binary([UInt8](repeating: 1, count: 10))
        #expect(outcome(of: [fits], limits: limits).events == [.message(ten)])
        let longFrame: [UInt8] = [0x82, 0x89, 0, 0, 0, 0]
        #expect(
            outcome(of: [longFrame], limits: limits).events == [.failure(.tooLarge(limit: 8))]
        )
        let longMessage =
            frame(0x02, [UInt8](repeating: 1, count: 8)) + [0x80, 0x83, 0, 0, 0, 0]
        #expect(
            outcome(of: [longMessage], limits: limits).events == [.failure(.tooLarge(limit: 10))]
        )
    }

    @Test func fragmentsWithoutEndAreRefused() {
        var bytes = frame(0x02)
        for _ in 0..<1025 { bytes += frame(0x00) }
        #expect(
            outcome(of: [bytes]).events == [.failure(.tooManyEmptyFragments(limit: 1024))]
        )
    }

    @Test func pongsAreMadeOneAtATime() {
        var machine = WebSocketMachine(role: .server)
        let flood = (0..<1000).flatMap { _ in frame(0x89, [UInt8](repeating: 1, count: 125)) }
        machine.receive(flood.span)
        var largest = 0
        var count = 0
        while machine.nextEvent() != nil {
            count += 1
            largest = max(largest, machine.takeOutput().count)
        }
        #expect(count == 1000)
        #expect(largest == 127)
    }
}
