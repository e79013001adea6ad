import BackgroundTransfer
import Foundation

/// Sends a text with a WebSocket task, and prints the answer and the calls of the delegate, a line for each.
///
///     websocket-task-client URL

/// A delegate that prints its calls.
final class Printer: NSObject, URLSessionWebSocketDelegate {
    /// The stream ends with the task.
    let calls = AsyncStream.makeStream(of: Void.self)

    func urlSession(
        _ session: URLSession,
        webSocketTask: URLSessionWebSocketTask,
        didOpenWithProtocol protocol: String?
    ) { print("opened") }

    func urlSession(
        _ session: URLSession,
        webSocketTask: URLSessionWebSocketTask,
        didCloseWith closeCode: URLSessionWebSocketTask.CloseCode,
        reason: Data?
    ) { print("closed \(closeCode.rawValue)") }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didCompleteWithError error: (any Error)?
    ) {
        if let error = error as? URLError {
            print("completed \(error.code.rawValue): \(error.localizedDescription)")
        } else {
            print("completed \(error.map { "\($0)" } ?? "well")")
        }
        calls.continuation.finish()
    }
}

let arguments = CommandLine.arguments
guard arguments.count == 2, let url = URL(string: arguments[1]) else {
    fatalError("expected a URL")
}
let printer = Printer()
let session = URLSession(configuration: .default, delegate: printer, delegateQueue: nil)
let task = session.webSocketTask(with: url)
task.resume()
do {
    try await task.send(.string("hello"))
    if case .string(let text) = try await task.receive() { print("received \(text)") }
    task.cancel(with: .goingAway, reason: nil)
} catch {
    // The delegate receives the same error.
}
for await _ in printer.calls.stream {}
