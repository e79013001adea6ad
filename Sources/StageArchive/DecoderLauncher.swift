import StageSystem
import Synchronization
import SystemPackage

/// A process that decodes one archive, and the socket to it.
final class DecoderProcess: Sendable {
    let child: ChildProcess
    let socket: MessageSocket

    init(child: ChildProcess, socket: MessageSocket) {
        self.child = child
        self.socket = socket
    }
}

/// Starts a decoder process for each archive, as a fork of the unpacking service.
///
/// The service starts with the first archive and never reads a byte of an archive itself. Forking takes a
/// third of the processor time of starting the program again.
final class DecoderLauncher: Sendable {
    private struct Service {
        let child: ChildProcess
        let socket: MessageSocket
    }

    private let executable: FilePath
    private let arguments: [String]
    private let service = Mutex<Service?>(nil)

    init(executable: FilePath, arguments: [String]) {
        self.executable = executable
        self.arguments = arguments
    }

    /// Starts a decoder process, which waits for its request.
    func start() throws(ArchiveError) -> DecoderProcess {
        try service.withLock { service throws(ArchiveError) in
            if let kept = service {
                if let process = try ArchiveError.wrapping({ () throws(FileError) in
                    try Self.decoder(of: kept)
                }) {
                    return process
                }
                // The service ended while idle; this request starts a new one.
                service = nil
            }
            return try ArchiveError.wrapping { () throws(FileError) in
                let fresh = try startService()
                guard let process = try Self.decoder(of: fresh) else {
                    throw FileError("start", path: executable, errno: .brokenPipe)
                }
                service = fresh
                return process
            }
        }
    }

    /// Starts the service, which holds the only other end of the socket on return.
    private func startService() throws(FileError) -> Service {
        let (ours, theirs) = try MessageSocket.pair()
        let child = try ChildProcess(
            executable: executable,
            arguments: arguments,
            channel: theirs
        )
        return Service(child: child, socket: ours)
    }

    /// Asks the service for a decoder process; returns `nil` if the service has ended.
    private static func decoder(of service: Service) throws(FileError) -> DecoderProcess? {
        let message: MessageSocket.Message
        let ours: MessageSocket
        do throws(FileError) {
            ours = try sendChannel(to: service)
            guard let answer = try service.socket.receive() else { return nil }
            message = answer
        } catch {
            guard error.errno == .brokenPipe || error.errno == .connectionReset else { throw error }
            return nil
        }
        message.closeFiles()
        switch message.value(as: ServiceStart.self) {
        case .process(let identifier):
            return DecoderProcess(child: ChildProcess(adopting: identifier), socket: ours)
        case .failure(let error):
            throw error
        case nil:
            return nil
        }
    }

    /// Sends the service one end of a socket pair, and returns the other.
    private static func sendChannel(to service: Service) throws(FileError) -> MessageSocket {
        let (ours, theirs) = try MessageSocket.pair()
        // An empty message would mean the end of the connection.
        try service.socket.send([0], files: [theirs.descriptor])
        return ours
    }
}
