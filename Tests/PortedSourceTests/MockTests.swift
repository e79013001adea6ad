import BackgroundTransfer
import Foundation
import Testing

/// Classes that stand in for a session and its tasks, as applications' tests have them.
struct MockTests {
    private final class Task: URLSessionDownloadTask, @unchecked Sendable {
        var resumptions = 0

        override var state: State { resumptions > 0 ? .running : .suspended }
        override var response: URLResponse? { nil }

        override func resume() { resumptions += 1 }

        override func cancel() {}
    }

    private final class Session: URLSession, @unchecked Sendable {
        let task = Task()

        override func downloadTask(with request: URLRequest) -> URLSessionDownloadTask { task }

        override func getAllTasks(
            completionHandler handler: @escaping @Sendable ([URLSessionTask]) -> Void
        ) { handler([task]) }
    }

    @Test func aSubclassReplacesASession() throws {
        let mock = Session()
        let session: URLSession = mock
        let url = try #require(URL(string: "https://example.org/"))
        let task = session.downloadTask(with: URLRequest(url: url))
        task.resume()
        #expect(mock.task.resumptions == 1)
        #expect(task.state == .running && task.taskIdentifier == 0)
        task.cancel()
        session.invalidateAndCancel()
    }

    @Test func anErrorIsConvertedToNSErrorWithItsResumeData() {
        let data = Data([1])
        let error: any Error = URLError(
            .cancelled,
            userInfo: [NSURLSessionDownloadTaskResumeData: data]
        )
        let converted = error as NSError
        #expect(converted.domain == NSURLErrorDomain)
        #expect(converted.code == NSURLErrorCancelled)
        #expect(converted.userInfo[NSURLSessionDownloadTaskResumeData] as? Data == data)
    }

    @Test func errorsHaveApplesNamesForTheirReasons() {
        let cancelled = URLError(
            .cancelled,
            userInfo: [NSURLErrorBackgroundTaskCancelledReasonKey: 2]
        )
        #expect(cancelled.backgroundTaskCancelledReason == .insufficientSystemResources)
        let offline = URLError(
            .notConnectedToInternet,
            userInfo: [NSURLErrorNetworkUnavailableReasonKey: 1]
        )
        #expect(offline.networkUnavailableReason == .expensive)
        #expect(URLError(.cancelled).backgroundTaskCancelledReason == nil)
    }
}
