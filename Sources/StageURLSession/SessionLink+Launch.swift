import Foundation
import StageControl
import StageSystem
import SystemPackage

extension SessionLink {
    /// Makes the session, with the default handler where its configuration names none.
    func makeSession(
        _ client: ControlClient,
        _ wire: inout Wire
    ) throws(ControlError) -> SessionStatus {
        var message = message
        if message.handler == nil {
            let known = try handler(client)
            // A launched process does not know how it was started, and must not end that by coming back.
            let isKept = launch != nil || !message.sendsLaunchEvents || known?.isDefault == false
            message.handler = isKept ? known : defaultHandler ?? known
        }
        message.handler = message.handler?.withFolders(of: ProcessEnvironment.current)
        do throws(ControlError) {
            return try ask(.makeSession(identifier, message), &wire)
        } catch .refused(let refusal)
            where [.forbidden, .invalid].contains(refusal.code)
            && message.handler?.isDefault == true
        {
            // The daemon starts no handlers for a confined client or a service's user, and none of a registration
            // whose arguments are too many. Events wait for a process.
            message.handler = nil
            return try ask(.makeSession(identifier, message), &wire)
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
