import CLinux
import StageModel
import StageSystem
import Synchronization
import SystemPackage

/// A request to a decoder process, and its answer.
final class DecoderExchange: Sendable {
    private struct State {
        var process: DecoderProcess?
        var isCancelled = false
    }

    private let request: ServiceRequest
    private let archive: FileDescriptor
    private let destination: Directory?
    private let progress: @Sendable (ByteCount) -> Void
    private let state = Mutex(State())

    /// Creates an exchange; the archive's descriptor must stay open until it has ended.
    init(
        _ request: ServiceRequest,
        archive: FileDescriptor,
        destination: Directory?,
        progress: @escaping @Sendable (ByteCount) -> Void
    ) {
        self.request = request
        self.archive = archive
        self.destination = destination
        self.progress = progress
    }

    /// Kills the process that works on the request, or prevents the request from being sent.
    func cancel() {
        state.withLock { state in
            state.isCancelled = true
            state.process?.child.kill()
        }
    }

    /// Sends the request to a new decoder process, and waits for the answer.
    func run(with launcher: DecoderLauncher) throws(ArchiveError) -> ServiceAnswer {
        let process = try launcher.start()
        guard begin(with: process) else { throw .cancelled }
        defer { end() }
        do throws(FileError) {
            try send(to: process)
        } catch {
            if state.withLock({ $0.isCancelled }) { throw .cancelled }
            // After EPIPE, the exit status of the process is more informative than the error.
            guard error.errno == .brokenPipe else { throw .fileSystem(error) }
            // A process that still runs stops waiting for a request.
            process.socket.finish()
        }
        let answer = try answer(of: process)
        // The process was killed, perhaps after it sent its answer.
        if state.withLock({ $0.isCancelled }) { throw .cancelled }
        return answer
    }

    private func begin(with process: DecoderProcess) -> Bool {
        state.withLock { state in
            state.process = process
            return !state.isCancelled
        }
    }

    private func end() {
        state.withLock { $0.process = nil }
    }

    /// Sends the request, with the archive reopened read-only: the decoder cannot modify it even if the
    /// caller may.
    private func send(to process: DecoderProcess) throws(FileError) {
        let copy = stage_reopen_file(archive.rawValue)
        guard copy >= 0 else { throw FileError("open", path: "/proc/self/fd", errno: .current) }
        let file = File(adopting: FileDescriptor(rawValue: copy), path: "archive")
        var files = [file.descriptor]
        if let destination { files.append(destination.descriptor) }
        try process.socket.send(value: request, files: files)
    }

    private func answer(of process: DecoderProcess) throws(ArchiveError) -> ServiceAnswer {
        while let message = receive(from: process) {
            switch message.value(as: ServiceAnswer.self) {
            case .progress(let bytes): progress(bytes)
            case .failure(let error): throw error
            case let answer?: return answer
            case nil: process.child.kill()
            }
        }
        // The end of the process closes the socket, since it cannot start another process. One that was taken over
        // may close the socket and stay: waiting for it would also keep `cancel()` waiting.
        let ending = process.child.waitForEnd(within: .seconds(1)) ?? Self.killed(process.child)
        throw state.withLock { $0.isCancelled } ? .cancelled : .interrupted(ending)
    }

    private static func killed(_ child: ChildProcess) -> ChildProcess.Ending {
        child.kill()
        return child.waitForEnd()
    }

    private func receive(from process: DecoderProcess) -> MessageSocket.Message? {
        do {
            guard let message = try process.socket.receive() else { return nil }
            guard message.files.isEmpty else {
                message.closeFiles()
                process.child.kill()
                return nil
            }
            return message
        } catch {
            // After a connection error, the process is of no use.
            process.child.kill()
            return nil
        }
    }
}
