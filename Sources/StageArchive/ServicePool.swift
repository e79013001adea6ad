import StageModel
import StageSystem
import Synchronization
import SystemPackage

/// A process that unpacks, with the socket to it.
final class ServiceProcess: Sendable {
    let child: ChildProcess
    let socket: MessageSocket

    init(executable: FilePath, arguments: [String]) throws(FileError) {
        let (ours, theirs) = try MessageSocket.pair()
        child = try ChildProcess(executable: executable, arguments: arguments, channel: theirs)
        socket = ours
    }
}

/// The processes that wait for a request.
final class ServicePool: Sendable {
    private let idle = Mutex<[ServiceProcess]>([])

    /// More processes than this are ended instead of kept.
    private static let maximumIdle = 4

    func take() -> ServiceProcess? {
        idle.withLock { $0.popLast() }
    }

    func keep(_ process: ServiceProcess) {
        idle.withLock { idle in
            if idle.count < Self.maximumIdle { idle.append(process) }
        }
    }
}

/// One request to an unpacking process, and its answer.
final class ServiceExchange: Sendable {
    private struct State {
        var process: ServiceProcess?
        var isCancelled = false
    }

    private let request: UnpackRequest
    private let progress: @Sendable (ByteCount) -> Void
    private let state = Mutex(State())

    init(_ request: UnpackRequest, _ progress: @escaping @Sendable (ByteCount) -> Void) {
        self.request = request
        self.progress = progress
    }

    /// Kills the process that works on the request, or keeps it from being sent.
    func cancel() {
        state.withLock { state in
            state.isCancelled = true
            state.process?.child.kill()
        }
    }

    /// Has the request done by a process of the pool, or by a new one, and waits for the answer.
    func run(
        in pool: ServicePool,
        _ executable: FilePath,
        _ arguments: [String]
    ) throws(ArchiveError) -> UnpackReport {
        while true {
            let kept = pool.take()
            let process = try ArchiveError.wrapping { () throws(FileError) in
                if let kept { return kept }
                return try ServiceProcess(executable: executable, arguments: arguments)
            }
            guard begin(with: process) else {
                pool.keep(process)
                throw .cancelled
            }
            do throws(FileError) {
                try send(to: process)
            } catch {
                // A process that ended while it waited is not the fault of this request.
                if kept != nil, error.errno == .brokenPipe { continue }
                throw .fileSystem(error)
            }
            let answer = try answer(of: process)
            if end() { throw .cancelled }
            pool.keep(process)
            return try answer.get()
        }
    }

    private func begin(with process: ServiceProcess) -> Bool {
        state.withLock { state in
            state.process = process
            return !state.isCancelled
        }
    }

    /// Lets go of the process, and returns whether it was killed before.
    private func end() -> Bool {
        state.withLock { state in
            state.process = nil
            return state.isCancelled
        }
    }

    private func send(to process: ServiceProcess) throws(FileError) {
        let message = ServiceRequest(
            destination: request.destination.path.string,
            format: request.format,
            fileName: request.fileName,
            limits: request.limits
        )
        let files = [request.archive, request.destination.descriptor]
        try process.socket.send(value: message, files: files)
    }

    private func answer(
        of process: ServiceProcess
    ) throws(ArchiveError) -> Result<UnpackReport, ArchiveError> {
        while let message = receive(from: process) {
            switch message.value(as: ServiceAnswer.self) {
            case .progress(let bytes): progress(bytes)
            case .report(let report): return .success(report)
            case .failure(let error): return .failure(error)
            case nil: process.child.kill()
            }
        }
        // The socket is closed by the end of the process alone.
        let ending = process.child.waitForEnd()
        throw end() ? .cancelled : .interrupted(ending)
    }

    private func receive(from process: ServiceProcess) -> MessageSocket.Message? {
        do {
            return try process.socket.receive()
        } catch {
            // Whatever broke the connection, the process is of no more use.
            process.child.kill()
            return nil
        }
    }
}
