import StageTesting
import StageWebSocket
import Testing

/// The pieces in which bytes arrive do not change the result.
@Suite struct CutTests {
    /// A stream with each kind of frame, compressed and not.
    private static func stream(_ generator: inout SeededGenerator) throws -> [UInt8] {
        var machine = WebSocketMachine(role: client, compression: DeflateAgreement())
        for _ in 0..<Int.random(in: 1...6, using: &generator) {
            switch Int.random(in: 0..<4, using: &generator) {
            case 0:
                try machine.ping(
                    [UInt8](repeating: 7, count: Int.random(in: 0...125, using: &generator))
                )
            case 1:
                try machine.send(
                    .text(
                        String(repeating: "€𝄞a", count: Int.random(in: 0...60, using: &generator))
                    )
                )
            default:
                try machine.send(
                    .binary(
                        (0..<Int.random(in: 0...300, using: &generator)).map { UInt8($0 & 0xFF) }
                    )
                )
            }
        }
        if Bool.random(using: &generator) {
            machine.close(WebSocketClose(code: .goingAway, reason: "end"))
        }
        return machine.takeOutput()
    }

    @Test(arguments: 0..<40)
    func aStreamCutAtEachOffsetHasTheSameEvents(seed: UInt64) throws {
        var generator = SeededGenerator(seed: seed)
        var bytes = try Self.stream(&generator)
        if Bool.random(using: &generator) {
            // For damaged bytes, the faults are the same, too.
            let index = Int.random(in: bytes.indices, using: &generator)
            bytes[index] ^= 1 << UInt8.random(in: 0..<8, using: &generator)
        }
        let compression = DeflateAgreement()
        let whole = outcome(of: [bytes], compression: compression)
        #expect(outcome(of: bytes.map { [$0] }, compression: compression) == whole)
        for offset in bytes.indices {
            let pieces = [Array(bytes[..<offset]), Array(bytes[offset...])]
            let cut = outcome(of: pieces, compression: compression)
            #expect(cut == whole, "cut at \(offset)")
        }
    }

    @Test func anEndAtEachOffsetIsNoMessage() throws {
        let bytes = try sent([.text("a text")], compression: DeflateAgreement())
        for offset in bytes.indices {
            let events = outcome(of: [Array(bytes[..<offset])], compression: DeflateAgreement())
            #expect(events == Outcome())
        }
    }

    @Test func anAnswerCutAtEachOffsetIsTheSame() throws {
        let nonce = [UInt8](repeating: 3, count: 16)
        var handshake = try ClientHandshake(host: "a", target: "/", nonce: nonce)
        var server = ServerHandshake()
        let read = try server.receive(handshake.request.span)
        guard let head = read?.head,
            case .accept(let answer, _, _) = server.answer(to: head)
        else { throw WebSocketError.handshake(.head) }
        let bytes = answer.bytes + [0x81]
        let unused = handshake
        let whole = try handshake.receive(bytes.span)
        #expect(whole?.rest == [0x81])
        #expect(whole?.compression == DeflateAgreement())
        for offset in bytes.indices {
            var handshake = unused
            let (first, second) = (Array(bytes[..<offset]), Array(bytes[offset...]))
            var result = try handshake.receive(first.span)
            if result == nil { result = try handshake.receive(second.span) }
            if offset == bytes.count - 1 { result?.rest += second }
            #expect(result == whole, "cut at \(offset)")
        }
    }
}
