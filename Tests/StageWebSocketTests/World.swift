import StageWebSocket

/// The events and the output that result from received bytes.
struct Outcome: Equatable {
    var events: [WebSocketEvent] = []
    var output: [UInt8] = []
    var isFinished = false
}

/// A client whose masking key is always the one of the example in RFC 6455, section 5.7.
let client = WebSocketMachine.Role.client { 0x3D21_FA37 }

/// Returns the events of a machine that receives the given pieces.
func outcome(
    of pieces: [[UInt8]],
    at role: WebSocketMachine.Role = .server,
    compression: DeflateAgreement? = nil,
    limits: WebSocketLimits = WebSocketLimits()
) -> Outcome {
    var machine = WebSocketMachine(role: role, compression: compression, limits: limits)
    var outcome = Outcome()
    for piece in pieces {
        machine.receive(piece.span)
        while let event = machine.nextEvent() { outcome.events.append(event) }
        outcome.output += machine.takeOutput()
    }
    outcome.isFinished = machine.isFinished
    return outcome
}

/// Returns a frame as a client sends it, with a masking key of zeros.
func frame(_ first: UInt8, _ payload: [UInt8] = []) -> [UInt8] {
    var bytes = [first]
    switch payload.count {
    case ...125: bytes.append(0x80 | UInt8(payload.count))
    case ...0xFFFF: bytes += [0xFE, UInt8(payload.count >> 8), UInt8(payload.count & 0xFF)]
    default:
        bytes.append(0xFF)
        bytes += (0..<8).reversed().map { UInt8(truncatingIfNeeded: payload.count >> ($0 * 8)) }
    }
    return bytes + [0, 0, 0, 0] + payload
}

/// Returns the bytes that a machine sends for messages.
func sent(
    _ messages: [WebSocketMessage],
    by role: WebSocketMachine.Role = client,
    compression: DeflateAgreement? = nil
) throws -> [UInt8] {
    var machine = WebSocketMachine(role: role, compression: compression)
    for message in messages { try machine.send(message) }
    return machine.takeOutput()
}

/// Returns the payload of a close frame as a server sends it.
func closeFrame(_ error: WebSocketError) -> [UInt8] {
    let code = error.closeCode.rawValue
    let payload = [UInt8(code >> 8), UInt8(code & 0xFF)] + Array("\(error)".utf8)
    return [0x88, UInt8(payload.count)] + payload
}
