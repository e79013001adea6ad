import BackgroundTransfer
import Foundation
import StageControl
import Synchronization
import Testing

@testable import StageURLSession

/// Launched processes whose daemon has ended.
@Suite(.serialized) struct LaunchWatchTests {
    /// A handler that creates the session for a daemon that does not run, and waits for its events.
    private final class Handler: BackgroundURLSessionHandling, Sendable {
        let session = Mutex<URLSession?>(nil)

        func application(
            handleEventsForBackgroundURLSession identifier: String,
            completionHandler: @escaping @Sendable () -> Void
        ) {
            let configuration = URLSessionConfiguration.background(withIdentifier: identifier)
            configuration.serviceSocketPath = "/nonexistent/socket"
            session.withLock { $0 = URLSession(configuration: configuration) }
        }
    }

    @Test func aLaunchedProcessDoesNotWaitForADaemonWithoutEnd() async throws {
        let environment = [
            "STAGEPACK_SESSION": UUID().uuidString, "STAGEPACK_LAUNCH": "l",
            "STAGEPACK_SOCKET": "/nonexistent/socket",
        ]
        let launch = try #require(BackgroundLaunch(environment: environment))
        let handler = Handler()
        let limit = Duration.milliseconds(50)
        await #expect(throws: ControlError.lost("/nonexistent/socket", after: limit)) {
            try await launch.run(handler, daemonTimeout: limit)
        }
        handler.session.withLock { $0?.invalidateAndCancel() }
    }

    @Test func onlyAnAbsenceWithoutAnAnswerCounts() {
        let identifier = UUID().uuidString
        let watch = LaunchWatch(identifier, limit: .seconds(10))
        watch.begin()
        let errors = Mutex<[ControlError]>([])
        watch.whenExpired { error in errors.withLock { $0.append(error) } }
        let start = SuspendingClock.now
        func fail(after seconds: Int, _ problem: ControlError = .notRunning(["/s"])) {
            LaunchWatch.attemptFailed(identifier, with: problem, at: start + .seconds(seconds))
        }
        fail(after: 0)
        LaunchWatch.daemonAnswered(identifier)
        fail(after: 10)
        fail(after: 19)
        fail(after: 20, .refused(ControlRefusal(.conflict, message: "another client is attached")))
        fail(after: 21)
        fail(after: 30)
        #expect(errors.withLock { $0.isEmpty })
        fail(after: 31)
        #expect(errors.withLock { $0 } == [.lost("/s", after: .seconds(10))])
        watch.whenExpired { error in errors.withLock { $0.append(error) } }
        #expect(errors.withLock { $0.count } == 2)
    }
}
