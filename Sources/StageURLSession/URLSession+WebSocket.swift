import Foundation
import FoundationNetworking
import StageControl
import Synchronization

extension URLSession {
    /// Creates a WebSocket task, or one that fails with the reason why it cannot connect.
    func makeWebSocketTask(_ request: URLRequest) -> URLSessionWebSocketTask {
        let url = request.url?.absoluteURL.overHTTP.absoluteString ?? ""
        var record = ClientTaskState(
            TransferRequest(token: UUID().uuidString, kind: .download, url: url),
            process: ForegroundTaskState()
        )
        record.original = request
        record.refusal =
            isForeground ? WebSocketRequest.problem(of: request) : .backgroundWebSocket
        record.identifier = TaskIdentity(at: .now).number
        let task = URLSessionWebSocketTask(record, session: self)
        add([task])
        return task
    }

    /// Cancels the WebSocket tasks.
    func cancelWebSocketTasks() {
        for case let task as URLSessionWebSocketTask in unfinished { task.cancel() }
    }

    /// Notifies the delegate that a connection is open.
    func reportOpening(of task: URLSessionWebSocketTask, subprotocol: String?) {
        delegateCalls.add { [self] in
            (task.listener as? any URLSessionWebSocketDelegate)?
                .urlSession(self, webSocketTask: task, didOpenWithProtocol: subprotocol)
        }
    }

    /// Notifies the delegate of the server's close frame, unless the task has already ended.
    func reportClose(
        of task: URLSessionWebSocketTask,
        code: URLSessionWebSocketTask.CloseCode,
        reason: Data?
    ) {
        guard !task.record.withLock({ $0.hasEnded }) else { return }
        delegateCalls.add { [self] in
            (task.listener as? any URLSessionWebSocketDelegate)?
                .urlSession(self, webSocketTask: task, didCloseWith: code, reason: reason)
        }
    }

    /// Ends a WebSocket task, unless it has ended.
    func end(_ task: URLSessionWebSocketTask, error: (any Error)?) {
        guard task.record.withLock({ $0.end() }) else { return }
        delegateCalls.add { [self] in
            complete(task, error: error, resumeData: nil)
            endIfDone()
        }
    }
}
