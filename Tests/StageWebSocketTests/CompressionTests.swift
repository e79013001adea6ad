import StageTesting
import StageWebSocket
import Testing

@Suite struct CompressionTests {
    static let directions: [DeflateDirection] = [8, 9, 12, 15].flatMap { bits in
        [true, false].map { DeflateDirection(windowBits: bits, allowsContextTakeover: $0) }
    }

    @Test(arguments: directions)
    func messagesArriveWithEachWindow(direction: DeflateDirection) throws {
        var generator = SeededGenerator(seed: 7)
        let words = (0..<64).map { _ in
            (0..<200).map { _ in UInt8.random(in: 0...255, using: &generator) }
        }
        let messages = (0..<20).map { _ in
            WebSocketMessage.binary(
                (0..<Int.random(in: 1...400, using: &generator)).flatMap { _ in
                    words.randomElement(using: &generator) ?? []
                }
            )
        }
        let agreement = DeflateAgreement(client: direction)
        let bytes = try sent(messages, compression: agreement)
        let result = outcome(of: [bytes], compression: agreement)
        #expect(result.events == messages.map { .message($0) })
        let total = messages.map(\.count).reduce(0, +)
        // zlib does not compress with a window of 2 to the power of 8 bytes.
        #expect(direction.windowBits == 8 ? bytes.count > total : bytes.count < total)
    }

    @Test func aMessageRefersToTheOneBeforeOnlyWithContextTakeover() throws {
        let text = WebSocketMessage.text("a text of which the second copy is short")
        func second(_ allowsContextTakeover: Bool) throws -> Int {
            let direction = DeflateDirection(allowsContextTakeover: allowsContextTakeover)
            let agreement = DeflateAgreement(client: direction)
            let one = try sent([text], compression: agreement).count
            return try sent([text, text], compression: agreement).count - one
        }
        #expect(try second(true) < 20)
        #expect(try second(false) > 40)
    }

    /// The examples of RFC 7692, section 7.2.3, each of a text "Hello".
    static let examples: [[[UInt8]]] = [
        [[0xC1, 0x07, 0xF2, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00]],
        [[0x41, 0x03, 0xF2, 0x48, 0xCD], [0x80, 0x04, 0xC9, 0xC9, 0x07, 0x00]],
        [[0xC1, 0x0B, 0x00, 0x05, 0x00, 0xFA, 0xFF, 0x48, 0x65, 0x6C, 0x6C, 0x6F, 0x00]],
        [[0xC1, 0x08, 0xF3, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00, 0x00]],
        [
            [
                0xC1, 0x0D, 0xF2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xFF, 0xFF, 0xCA, 0xC9, 0xC9, 0x07,
                0x00,
            ]
        ],
    ]

    @Test(arguments: examples)
    func theExamplesOfTheStandardAreRead(pieces: [[UInt8]]) {
        // A second message with a reference to the first: the window outlasts a final block, too.
        let again: [UInt8] = [0xC1, 0x05, 0xF2, 0x00, 0x11, 0x00, 0x00]
        let result = outcome(of: pieces + [again], at: client, compression: DeflateAgreement())
        #expect(result.events == [.message(.text("Hello")), .message(.text("Hello"))])
    }

    @Test func anEmptyMessageArrives() throws {
        let agreement = DeflateAgreement()
        let bytes = try sent([.text(""), .text("a"), .binary([])], compression: agreement)
        let expected: [WebSocketEvent] = [
            .message(.text("")), .message(.text("a")), .message(.binary([])),
        ]
        #expect(outcome(of: [bytes], compression: agreement).events == expected)
        let compressed = frame(0xC1, [0x00])
        #expect(outcome(of: [compressed], compression: agreement).events == [.message(.text(""))])
    }

    static let faults: [([UInt8], WebSocketError)] = [
        (frame(0xC1, [0xFF, 0xFF]), .invalidCompression),
        // The message does not end this block.
        (frame(0xC1, [0xF2, 0x48, 0xCD]), .invalidCompression),
        (frame(0xC2, [0x00, 0x06, 0x00, 0xF9, 0xFF, 0x48]), .invalidCompression),
        (frame(0x41, [0xF2]) + frame(0xC0), .frame(.reservedBits)),
        // "\xFF" in a block without compression.
        (frame(0xC1, [0x00, 0x01, 0x00, 0xFE, 0xFF, 0xFF, 0x00]), .invalidText),
        // The same message before a block of an unknown type: the first fault is reported.
        (frame(0xC1, [0x00, 0x01, 0x00, 0xFE, 0xFF, 0xFF, 0x07]), .invalidText),
    ]

    @Test(arguments: faults)
    func aFaultInACompressedMessageIsFound(bytes: [UInt8], error: WebSocketError) {
        let events = outcome(of: [bytes], compression: DeflateAgreement()).events
        #expect(events == [.failure(error)])
    }

    @Test func aBombEndsAtTheLimit() throws {
        let zeros = WebSocketMessage.binary([UInt8](repeating: 0, count: 8 << 20))
        let bytes = try sent([zeros], compression: DeflateAgreement())
        #expect(bytes.count < 1 << 16)
        let limits = WebSocketLimits(messageSize: 1 << 16)
        #expect(
            outcome(of: [bytes], compression: DeflateAgreement(), limits: limits).events
                == [.failure(.tooLarge(limit: 1 << 16))]
        )
    }

    @Test func finalBlocksWithoutEndAreRefused() {
        // Each pair of bytes is an empty final block.
        let bytes = (0..<1025).flatMap { _ in [0x03, 0x00] as [UInt8] }
        let error = WebSocketError.tooManyEmptyFragments(limit: 1024)
        #expect(
            outcome(of: [frame(0xC2, bytes)], compression: DeflateAgreement()).events
                == [.failure(error)]
        )
    }
}
