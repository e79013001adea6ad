import Logging
import StageTransfer
import StageWebSocket
import StageWebSocketClient
import SystemPackage

/// Runs the client of StagePack against other implementations.
///
///     websocket-conformance-client autobahn ws://HOST:PORT [--without-context-takeover]
///     websocket-conformance-client echo URL [--authorities FILE] [--proxy URL]
///
/// The first runs all cases of a fuzzing server as Autobahn defines them; the second sends messages to a server that sends
/// each back, and ends with status 1 unless they are equal.
let arguments = Array(CommandLine.arguments.dropFirst())

func value(of option: String) -> String? {
    arguments.firstIndex(of: option).flatMap { index in
        index + 1 < arguments.count ? arguments[index + 1] : nil
    }
}

var configuration = TransferConfiguration()
configuration.certificateAuthorities = value(of: "--authorities").map { FilePath($0) }
configuration.proxies = ProxySettings(http: value(of: "--proxy"), https: value(of: "--proxy"))

var options = WebSocketOptions()
options.limits = WebSocketLimits(messageSize: 32 << 20)

if arguments.contains("--without-context-takeover") {
    options.compression = DeflateAgreement(client: DeflateDirection(allowsContextTakeover: false))
}

guard arguments.count >= 2 else { fatalError("expected a mode and a URL") }
let url = arguments[1]
try await withTransferEngine(configuration, logger: Logger(label: "client")) { engine in
    switch arguments[0] {
    case "autobahn": try await runCases(of: url, engine, options)
    case "echo": try await exchange(with: url, engine, options)
    default: fatalError("expected 'autobahn' or 'echo'")
    }
}

nonisolated func runCases(
    of url: String,
    _ engine: TransferEngine,
    _ options: WebSocketOptions
) async throws {
    let count = try await WebSocket.withConnection(to: "\(url)/getCaseCount", over: engine) {
        messages,
        _ in
        for try await message in messages {
            if case .text(let text) = message, let count = Int(text) { return count }
        }
        return 0
    }
    print("cases: \(count)")
    for number in 1...max(count, 1) {
        do {
            try await WebSocket.withConnection(
                to: "\(url)/runCase?case=\(number)&agent=stagepack",
                over: engine,
                options: options
            ) { messages, writer in
                for try await message in messages { try await writer.send(message) }
            }
        } catch is WebSocketClientError {
            // Many cases violate the protocol: the report of the server contains the results.
        }
    }
    do {
        let last = "\(url)/updateReports?agent=stagepack"
        try await WebSocket.withConnection(to: last, over: engine) { messages, _ in
            for try await _ in messages {}
        }
    } catch WebSocketClientError.lost {
        // The server has finished its cases, and stops.
    }
}

nonisolated func exchange(
    with url: String,
    _ engine: TransferEngine,
    _ options: WebSocketOptions
) async throws {
    var sent: [WebSocketMessage] = [.text(""), .text("a text with ü, € and 𝄞"), .binary([])]
    for size in [125, 126, 65535, 65536, 900_000] {
        sent.append(.binary((0..<size).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 3) }))
        sent.append(.text(String(repeating: "text ", count: size / 5)))
    }
    let messages = sent
    try await WebSocket.withConnection(to: url, over: engine, options: options) { input, writer in
        try await writer.ping()
        var iterator = input.makeAsyncIterator()
        for message in messages {
            try await writer.send(message)
            let answer = try await iterator.next()
            precondition(answer == message, "a message came back as another one")
        }
        try await writer.close(code: .goingAway, reason: "done")
        let end = try await iterator.next()
        precondition(end == nil, "a message came after the close")
        precondition(input.close?.code == .goingAway, "the close was not answered")
    }
    print("messages: \(messages.count)")
}
