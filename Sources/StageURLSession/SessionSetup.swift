import Foundation
import StageControl
import StageSystem
import SystemPackage

/// Makes the session of a configuration at a daemon.
struct SessionSetup: Sendable {
    private let identifier: String
    private let message: SessionConfiguration
    /// The application group of the configuration.
    private let group: String?
    /// Whether the daemon has started this process for the session.
    private let isLaunched: Bool

    /// Creates the setup of a configuration's session.
    init(_ configuration: URLSessionConfiguration, isLaunched: Bool) {
        identifier = configuration.identifier ?? ""
        message = configuration.message
        group = configuration.sharedContainerIdentifier
        self.isLaunched = isLaunched
    }

    /// Makes the session, with the default handler where its configuration names none.
    func makeSession(_ client: ControlClient) throws(ControlError) -> SessionStatus {
        var message = message
        if message.handler == nil {
            let known = try handler(client)
            // A launched process does not know how it was started, and must not end that by coming back.
            let isKept = isLaunched || !message.sendsLaunchEvents || known?.isDefault == false
            message.handler = isKept ? known : defaultHandler ?? known
        }
        message.handler = message.handler?.withFolders(of: ProcessEnvironment.current)
        do throws(ControlError) {
            return try client.answer(to: .makeSession(identifier, message))
        } catch .refused(let refusal)
            where [.forbidden, .invalid].contains(refusal.code)
            && message.handler?.isDefault == true
        {
            // The daemon starts no handlers for a confined client or a service's user, and none of a registration
            // whose arguments are too many. Events wait for a process.
            message.handler = nil
            return try client.answer(to: .makeSession(identifier, message))
        }
    }

    /// The handler for a configuration that names none.
    private var defaultHandler: LaunchHandler? {
        LaunchHandler(
            group: group,
            application: Bundle.main.bundleIdentifier,
            executable: FilePath("/proc/self/exe").resolved,
            environment: ProcessEnvironment.current
        )
    }

    /// The handler that the session has already.
    private func handler(_ client: ControlClient) throws(ControlError) -> LaunchHandler? {
        do throws(ControlError) {
            let status = try client.answer(to: .session(identifier))
            return status.configuration.handler
        } catch {
            guard case .refused(let refusal) = error, refusal.code == .notFound else { throw error }
            return nil
        }
    }
}
