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
    /// It must be called once, on any thread; afterwards the process may be ended. Further calls do nothing.
    func application(
        handleEventsForBackgroundURLSession identifier: String,
        completionHandler: @escaping @Sendable () -> Void
    )
}

/// The launch of a process by the daemon, to handle the events of a session.
///
/// The process has ten minutes, and another ten each time it calls ``extend()``.
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
    /// Returns `false` at once if the daemon did not start the process.
    ///
    /// ```swift
    /// if try await BackgroundLaunch.handle(by: Downloads.shared) { return }
    /// ```
    ///
    /// - Throws: The error of the request to the daemon.
    @MainActor
    public static func handle(by handler: some BackgroundURLSessionHandling) async throws -> Bool {
        guard let launch = current else { return false }
        let once = Once()
        await withCheckedContinuation { continuation in
            handler.application(handleEventsForBackgroundURLSession: launch.identifier) {
                if once.isFirst() { continuation.resume() }
            }
        }
        try await launch.finish()
        return true
    }

    /// Asks for ten more minutes.
    ///
    /// - Throws: The error of the request if the daemon does not run or refuses.
    public func extend() async throws {
        try await ControlClient.discover(environment: environment).extend(identifier)
    }

    /// Informs the daemon that this launch has finished its work.
    private func finish() async throws {
        if let session = SessionRegistry.session(identifier) {
            // Tasks that the handler created belong to the launch.
            await session.flush()
            let didSend = await withCheckedContinuation { continuation in
                session.link.connection.finishLaunch { continuation.resume(returning: $0) }
            }
            if didSend { return }
        }
        // The session has ended: all of its events are acknowledged.
        let client = try await ControlClient.discover(environment: environment)
        let status = try await client.session(identifier)
        let acknowledgement = Acknowledgement(sequence: status.acknowledgedEvent, launch: token)
        try await client.acknowledge(acknowledgement, in: identifier)
    }
}
