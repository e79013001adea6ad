import Foundation
import FoundationNetworking
import StageControl
import StageModel
import Synchronization

extension URLSession {
    func makeForegroundData(
        _ request: URLRequest,
        deliveringTo receiver: ForegroundTransfer.Receiver = .delegate,
        delegate: (any URLSessionTaskDelegate)? = nil
    ) -> URLSessionDataTask {
        guard isForeground else {
            return makeRefused(request, deliveringTo: receiver) {
                URLSessionDataTask($0, session: self)
            }
        }
        let transfer = ForegroundTransfer(receiver, body: .of(request))
        return make(request, kind: request.hasBody ? .upload : .download, transfer: transfer) {
            URLSessionDataTask($0, session: self, transfer: transfer, delegate: delegate)
        }
    }

    func makeForegroundUpload(
        _ request: URLRequest,
        body: ForegroundTransfer.Body,
        deliveringTo receiver: ForegroundTransfer.Receiver = .delegate,
        delegate: (any URLSessionTaskDelegate)? = nil
    ) -> URLSessionUploadTask {
        var request = request
        if request.httpMethod ?? "GET" == "GET" { request.httpMethod = "POST" }
        guard isForeground else {
            return makeRefused(request, deliveringTo: receiver) {
                URLSessionUploadTask($0, session: self)
            }
        }
        let transfer = ForegroundTransfer(receiver, body: body)
        return make(request, kind: .upload, transfer: transfer) {
            URLSessionUploadTask($0, session: self, transfer: transfer, delegate: delegate)
        }
    }

    func makeForegroundDownload(
        _ request: URLRequest,
        deliveringTo receiver: ForegroundTransfer.Receiver = .delegate,
        delegate: (any URLSessionTaskDelegate)? = nil
    ) -> URLSessionDownloadTask {
        guard isForeground else {
            return makeRefused(request, deliveringTo: receiver) {
                URLSessionDownloadTask($0, session: self)
            }
        }
        let transfer = ForegroundTransfer(receiver, body: .of(request))
        return make(request, kind: .download, transfer: transfer) {
            URLSessionDownloadTask($0, session: self, transfer: transfer, delegate: delegate)
        }
    }

    /// Creates a download task that resumes an earlier one.
    func makeForegroundDownload(
        resuming data: Data,
        deliveringTo receiver: ForegroundTransfer.Receiver = .delegate,
        delegate: (any URLSessionTaskDelegate)? = nil
    ) -> URLSessionDownloadTask {
        let partial = PartialDownload(data)
        let request = partial?.request ?? URLRequest(url: URL(fileURLWithPath: "/"))
        guard isForeground else {
            return makeRefused(request, deliveringTo: receiver) {
                URLSessionDownloadTask($0, session: self)
            }
        }
        let transfer = ForegroundTransfer(receiver, resumed: partial)
        let problem =
            partial == nil
            ? URLError(
                .cannotDecodeRawData,
                reason: "the data is not resume data of a download in the process"
            ) : nil
        return make(request, kind: .download, transfer: transfer, problem: problem) {
            URLSessionDownloadTask($0, session: self, transfer: transfer, delegate: delegate)
        }
    }

    private func make<Task: URLSessionTask>(
        _ request: URLRequest,
        kind: TransferRequest.Kind,
        transfer: ForegroundTransfer,
        problem: URLError? = nil,
        build: (ClientTaskState) -> Task
    ) -> Task {
        let identity = TaskIdentity(at: .now)
        var wire = TransferRequest(
            token: identity.newToken,
            kind: kind,
            url: request.url?.absoluteURL.absoluteString ?? ""
        )
        wire.method = request.httpMethod
        if case .file(let file) = transfer.body { wire.file = file.path }
        var record = ClientTaskState(wire, process: ForegroundTaskState())
        record.identifier = identity.number
        record.original = request
        var hasBody = true
        if case .none = transfer.body { hasBody = false }
        record.refusal =
            refusal ?? problem ?? ForegroundRequest.problem(of: request, hasBody: hasBody)
        let task = build(record)
        add([task])
        return task
    }

    /// Creates a task that a background session does not support, which fails when it is resumed.
    private func makeRefused<Task: URLSessionTask>(
        _ request: URLRequest,
        deliveringTo receiver: ForegroundTransfer.Receiver,
        build: (ClientTaskState) -> Task
    ) -> Task {
        var specification = TaskSpecification(download: request, rules: rules)
        specification.problem = URLError(
            .unsupportedURL,
            reason:
                "a background session has no data tasks, no bodies in memory, and no calls that wait for a response, "
                + "since the process may end before: use downloadTask(with:) or uploadTask(with:fromFile:) and the "
                + "delegate, or a session of URLSessionConfiguration.default",
            failing: request.url
        )
        return make([specification]) { record in
            var record = record
            record.receiver = receiver
            return build(record)
        }[0]
    }
}
