import BackgroundTransfer
import Foundation
import Testing

/// A chat as applications for Apple's platforms have it: a session with a delegate, and a loop of receives.
private final class Chat: NSObject, URLSessionWebSocketDelegate, @unchecked Sendable {
    private lazy var session = URLSession(
        configuration: .default,
        delegate: self,
        delegateQueue: nil
    )
    private lazy var task = session.webSocketTask(with: url, protocols: ["chat"])
    private let url: URL
    private let log: @Sendable (String) -> Void

    init(url: URL, log: @escaping @Sendable (String) -> Void) {
        self.url = url
        self.log = log
        super.init()
        task.maximumMessageSize = 1 << 22
        task.taskDescription = "chat"
    }

    func connect() {
        task.resume()
        listen()
    }

    private func listen() {
        task.receive { [weak self] result in
            switch result {
            case .failure(let error):
                self?.log("failed: \((error as? URLError)?.code == .cannotConnectToHost)")
            case .success(.string(let text)): self?.log(text)
            case .success(.data(let data)): self?.log("\(data.count) bytes")
            @unknown default: fatalError("a message of another kind")
            }
            if case .success = result { self?.listen() }
        }
    }

    func send(_ text: String) async throws {
        try await task.send(.string(text))
        task.sendPing { [log] error in log(error?.localizedDescription ?? "pong") }
    }

    func leave() {
        task.cancel(with: .goingAway, reason: "bye".data(using: .utf8))
        session.finishTasksAndInvalidate()
    }

    func urlSession(
        _ session: URLSession,
        webSocketTask: URLSessionWebSocketTask,
        didOpenWithProtocol protocol: String?
    ) { log("opened with \(`protocol` ?? "nothing")") }

    func urlSession(
        _ session: URLSession,
        webSocketTask: URLSessionWebSocketTask,
        didCloseWith closeCode: URLSessionWebSocketTask.CloseCode,
        reason: Data?
    ) {
        switch closeCode {
        case .normalClosure, .goingAway: log("closed")
        default: log("closed with \(closeCode.rawValue)")
        }
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didCompleteWithError error: (any Error)?
    ) { log("completed: \(error != nil)") }
}

/// Source with a WebSocket task.
struct WebSocketSourceTests {
    @Test func aChatLearnsThatThereIsNoServer() async throws {
        let url = try #require(URL(string: "ws://127.0.0.1:1/chat"))
        let (lines, continuation) = AsyncStream.makeStream(of: String.self)
        let chat = Chat(url: url) { continuation.yield($0) }
        chat.connect()
        var found: Set<String> = []
        for await line in lines {
            found.insert(line)
            if found.count == 2 { break }
        }
        #expect(found == ["failed: true", "completed: true"])
        await #expect(throws: URLError.self) { try await chat.send("hello") }
        chat.leave()
    }

    @Test func theSharedSessionMakesWebSocketTasks() throws {
        let url = try #require(URL(string: "wss://chat.example/"))
        let task = URLSession.shared.webSocketTask(with: url)
        #expect(task.state == .suspended && task.maximumMessageSize == 1_048_576)
        #expect(URLSessionWebSocketTask.CloseCode(rawValue: 1001) == .goingAway)
        #expect(URLSessionWebSocketTask.CloseCode(rawValue: 4001)?.rawValue == 4001)
        task.cancel()
    }
}
