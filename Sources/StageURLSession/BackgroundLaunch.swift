import Foundation
import StageControl
import StageSystem
import Synchronization

/// Handler that is called when the daemon has started the process to handle the events of a session.
///
/// The counterpart of the method of `UIApplicationDelegate` on Apple's systems.
public protocol BackgroundURLSessionHandling {
    /// Creates the session with this identifier again, and keeps `completionHandler` until the session calls its
    /// delegate's ``URLSessionDelegate/urlSessionDidFinishEvents(forBackgroundURLSession:)``, which calls it.
    ///
    /// This is called on the main actor. The completion handler must be called once, on any thread; afterwards the process may
    /// be ended. Further calls do nothing.
    func application(
        handleEventsForBackgroundURLSession identifier: String,
        completionHandler: @escaping @Sendable () -> Void
    )
}

/// The launch of a process by the daemon, to handle the events of a session.
///
/// The process has ten minutes, and another ten each time it calls ``extend()``. Programs that it starts inherit the launch:
/// one that uses this module must not have `STAGEPACK_SESSION` and `STAGEPACK_LAUNCH` in its environment.
public struct BackgroundLaunch: Hashable, Sendable {
    /// The launch of this process; `nil` if the daemon did not start it.
    public static let current = BackgroundLaunch(
        environment: ProcessEnvironment.current
    )

    /// Identifier of the session.
    public let identifier: String
    let token: String
    let environment: [String: String]

    init?(environment: [String: String]) {
        guard let identifier = environment["STAGEPACK_SESSION"],
            let token = environment["STAGEPACK_LAUNCH"]
        else { return nil }
        self.identifier = identifier
        self.token = token
        self.environment = environment
    }

    /// Lets `handler` handle the events if the daemon has started this process for that, and returns once the daemon
    /// has been informed; the process should end then.
    ///
    /// ```swift
    /// if try await BackgroundLaunch.handle(by: Downloads.shared) { return }
    /// ```
    ///
    /// - Parameters:
    ///   - handler: The handler of the events.
    ///   - daemonTimeout: The time after which a daemon that cannot be reached counts as permanently gone: the process
    ///     should end, and the next daemon starts another one. The time in which the machine is suspended does not count.
    /// - Returns: `true`; or `false` at once if the daemon did not start the process.
    /// - Throws: The error of the request to the daemon, or of its absence.
    @MainActor
    public static func handle(
        by handler: some BackgroundURLSessionHandling,
        daemonTimeout: Duration = .seconds(600)
    ) async throws -> Bool {
        guard let launch = current else { return false }
        try await launch.run(handler, daemonTimeout: daemonTimeout)
        return true
    }

    /// Lets `handler` handle the events, and informs the daemon once they are handled.
    @MainActor
    func run(
        _ handler: some BackgroundURLSessionHandling,
        daemonTimeout: Duration
    ) async throws {
        let watch = LaunchWatch(identifier, limit: daemonTimeout)
        watch.begin()
        let hasResumed = OneShotFlag()
        let problem = await withCheckedContinuation {
            (continuation: CheckedContinuation<ControlError?, Never>) in
            watch.whenExpired { if hasResumed.claim() { continuation.resume(returning: $0) } }
            handler.application(handleEventsForBackgroundURLSession: identifier) {
                if hasResumed.claim() { continuation.resume(returning: nil) }
            }
        }
        if let problem { throw problem }
        try await finish(watch)
    }

    /// Asks for ten more minutes.
    ///
    /// - Throws: The error of the request if the daemon does not run or refuses.
    public func extend() async throws {
        try await ControlClient.discover(environment: environment).extend(identifier)
    }

    /// Informs the daemon that this launch has finished its work.
    private func finish(_ watch: LaunchWatch) async throws {
        if let session = SessionRegistry.session(identifier) {
            // Tasks that the handler created belong to the launch.
            await session.flush()
            let hasResumed = OneShotFlag()
            let result = await withCheckedContinuation {
                (continuation: CheckedContinuation<Result<Bool, ControlError>, Never>) in
                watch.whenExpired {
                    if hasResumed.claim() { continuation.resume(returning: .failure($0)) }
                }
                session.link.connection.finishLaunch {
                    if hasResumed.claim() { continuation.resume(returning: .success($0)) }
                }
            }
            if try result.get() { return }
        }
        // The session has ended: all of its events are acknowledged.
        let client = try await ControlClient.discover(environment: environment)
        let status = try await client.session(identifier)
        let acknowledgement = Acknowledgement(sequence: status.acknowledgedEvent, launch: token)
        try await client.acknowledge(acknowledgement, in: identifier)
    }
}
