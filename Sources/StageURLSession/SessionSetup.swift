import Foundation
import StageControl
import StageSystem
import SystemPackage

/// Creates the session of a configuration at a daemon.
struct SessionSetup: Sendable {
    private let identifier: String
    private let message: SessionConfiguration
    /// Application group of the configuration.
    private let group: String?
    /// `true` if the daemon has started this process for the session.
    private let isLaunched: Bool

    /// Creates the setup for a configuration.
    init(_ configuration: URLSessionConfiguration, isLaunched: Bool) {
        identifier = configuration.identifier ?? ""
        message = configuration.message
        group = configuration.sharedContainerIdentifier
        self.isLaunched = isLaunched
    }

    /// Creates the session, with the default handler if its configuration names none.
    func makeSession(_ client: ControlClient) throws(ControlError) -> SessionStatus {
        var message = message
        if message.handler == nil {
            let known = try handler(client)
            // A launched process does not know its own command line, and must not replace the handler that started
            // it.
            let isKept = isLaunched || !message.sendsLaunchEvents || known?.isDefault == false
            message.handler = isKept ? known : defaultHandler ?? known
        }
        message.handler = message.handler?.withFolders(of: ProcessEnvironment.current)
        do throws(ControlError) {
            return try client.answer(to: .makeSession(identifier, configuration: message))
        } catch .refused(let refusal)
            where [.forbidden, .invalid].contains(refusal.code)
            && message.handler?.isDefault == true
        {
            // The daemon refuses handlers of a confined client or of a service's user, and registrations with too
            // many arguments. Events then wait for a process.
            message.handler = nil
            return try client.answer(to: .makeSession(identifier, configuration: message))
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

    /// Returns the current handler of the session.
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
