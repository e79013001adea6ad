import Glibc
import StageModel
import StageSystem
import Synchronization
public import SystemPackage

/// The unpacking process's side of ``Unpacker/Mode/process(executable:arguments:)``.
public enum UnpackService {
    /// Serves requests from the socket until the other side closes it, and returns the exit status.
    ///
    /// Limits this process for good: its memory, its open files, and for each request the largest file
    /// and the processor time. The process should do nothing else.
    ///
    /// - Parameter descriptor: The socket; an ``Unpacker`` passes it as descriptor 3.
    /// - Returns: 0, or 1 where the system refused.
    public static func run(
        _ descriptor: FileDescriptor = FileDescriptor(rawValue: 3)
    ) -> CInt {
        let socket = MessageSocket(adopting: descriptor)
        // A file that grows too large is an error of write(2) then, not a signal.
        _ = signal(SIGXFSZ, SIG_IGN)
        do {
            try ResourceLimits.limitProcess()
            while let message = try socket.receive() {
                try socket.send(value: answer(to: message, on: socket))
            }
            return 0
        } catch {
            // The other side has gone, or the system refused a limit: it learns from the status.
            return 1
        }
    }

    private static func answer(
        to message: MessageSocket.Message,
        on socket: MessageSocket
    ) throws(FileError) -> ServiceAnswer {
        guard message.files.count == 2, let wish = message.value(as: ServiceRequest.self) else {
            throw FileError("receive from", "socket", .invalidArgument)
        }
        let archive = File(adopting: message.files[0], path: "archive")
        let destination = Directory(
            adopting: message.files[1],
            path: FilePath(wish.destination)
        )
        let request = UnpackRequest(
            archive: archive.descriptor,
            destination: destination,
            format: wish.format,
            fileName: wish.fileName,
            limits: wish.limits
        )
        try limits(for: wish.limits).apply()
        return try serve(request, on: socket)
    }

    /// Unpacks on a thread of its own, because confinement lasts as long as its thread.
    private static func serve(
        _ request: UnpackRequest,
        on socket: MessageSocket
    ) throws(FileError) -> ServiceAnswer {
        let cancellation = Cancellation()
        let box = Box()
        let thread = try SystemThread(name: "stage-unpack") {
            let events = UnpackEvents(
                progress: { bytes in
                    do {
                        try socket.send(value: ServiceAnswer.progress(bytes))
                    } catch {
                        // Nobody waits for the result any more.
                        cancellation.request()
                    }
                },
                isCancelled: { cancellation.isRequested }
            )
            do throws(ArchiveError) {
                box.set(.report(try request.unpackConfined(events)))
            } catch {
                box.set(.failure(error))
            }
        }
        thread.join()
        return box.answer
    }

    /// Decoders of the formats at hand do more than 4 MiB a second on any machine in use.
    private static func limits(for limits: UnpackLimits) -> ResourceLimits {
        let bytes = UInt64(clamping: limits.bytes.rawValue)
        return ResourceLimits(fileSize: bytes, processorSeconds: 120 + (bytes >> 22))
    }
}

/// A thread's answer to the one that waits for it.
private final class Box: Sendable {
    private let value: Mutex<ServiceAnswer>

    init() { value = Mutex(.failure(.cancelled)) }

    var answer: ServiceAnswer { value.withLock { $0 } }

    func set(_ answer: ServiceAnswer) { value.withLock { $0 = answer } }
}
