import Foundation
import StageControl
import StageSystem
import Synchronization

/// Is called when the daemon has started the process to take the events of a session in.
///
/// What `UIApplicationDelegate` has for this on Apple's systems.
public protocol BackgroundURLSessionHandling {
    /// Makes the session of this identifier again, and keeps `completionHandler` until its delegate is told
    /// ``URLSessionDelegate/urlSessionDidFinishEvents(forBackgroundURLSession:)``, which calls it.
    ///
    /// It is to be called once, on any thread; the process may be ended afterwards. Further calls do nothing.
    func application(
        handleEventsForBackgroundURLSession identifier: String,
        completionHandler: @escaping @Sendable () -> Void
    )
}

/// The start of a process by the daemon, to take the events of a session in.
///
/// The process has ten minutes, and as many more each time it asks for them.
public struct BackgroundLaunch: Hashable, Sendable {
    /// The launch of this process; `nil` if somebody else has started it.
    public static let current = BackgroundLaunch(
        environment: ProcessEnvironment.current
    )

    /// The identifier of the session.
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

    /// Has `handler` take the events in if the daemon has started this process for that, and returns once
    /// the daemon knows that it did; the process should end then.
    ///
    /// Returns `false` at once if somebody else has started the process.
    ///
    /// ```swift
    /// if try await BackgroundLaunch.handle(by: Downloads.shared) { return }
    /// ```
    ///
    /// - Throws: An error of the daemon's, where it could not be told.
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
    /// - Throws: An error of the daemon's, where it is not there or refuses.
    public func extend() async throws {
        try await ControlClient.discover(environment: environment).extend(identifier)
    }

    /// Tells the daemon that this launch has done what it was for.
    private func finish() async throws {
        if let session = SessionRegistry.session(identifier) {
            // Tasks that the handler created belong to the launch.
            await session.flush()
            let wasTold = await withCheckedContinuation { continuation in
                session.link.connection.finishLaunch { continuation.resume(returning: $0) }
            }
            if wasTold { return }
        }
        // The session is over: everything that it took in is acknowledged.
        let client = try await ControlClient.discover(environment: environment)
        let status = try await client.session(identifier)
        let acknowledgement = Acknowledgement(sequence: status.acknowledgedEvent, launch: token)
        try await client.acknowledge(acknowledgement, in: identifier)
    }
}
