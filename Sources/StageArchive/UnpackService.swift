import CLinux
import Glibc
import StageModel
import StageSystem
public import SystemPackage

/// The unpacking process's side of ``Unpacker/Mode/process(executable:arguments:)``.
public enum UnpackService {
    /// Makes a process for each archive, until the other side closes the socket, and returns the exit
    /// status.
    ///
    /// Each is a copy of this one, which confines itself as a whole before it reads a byte of its archive:
    /// no capabilities, no files but those below its destination, few system calls, limits on memory,
    /// files and processor time. A copy has one thread, the one that copies, so this process must have no
    /// other: call this before anything else.
    ///
    /// - Parameter descriptor: The socket; an ``Unpacker`` passes it as descriptor 3.
    /// - Returns: 0, or 1 where the system refused, or the process has other threads.
    public static func run(
        _ descriptor: FileDescriptor = FileDescriptor(rawValue: 3)
    ) -> CInt {
        let socket = MessageSocket(adopting: descriptor)
        // A file that grows too large is an error of write(2) then, not a signal.
        _ = signal(SIGXFSZ, SIG_IGN)
        UTF8Locale.prepare()
        do {
            guard try Directory.open("/proc/self/task").entries().count == 1 else { return 1 }
            while let message = try socket.receive() {
                try socket.send(value: start(message, socket))
            }
            return 0
        } catch {
            // The other side has gone, or the system refused: it learns from the status.
            return 1
        }
    }

    /// Makes the process that serves the socket of a message.
    private static func start(
        _ message: MessageSocket.Message,
        _ service: MessageSocket
    ) -> ServiceStart {
        defer { message.closeFiles() }
        guard let channel = message.files.first else {
            return .failure(FileError("receive from", "socket", .invalidArgument))
        }
        let identifier = stage_clone_sibling()
        if identifier == 0 {
            close(service.descriptor.rawValue)
            serve(MessageSocket(adopting: channel))
        }
        return identifier > 0
            ? .process(identifier)
            : .failure(FileError("start", FilePath("unpack-service"), .current))
    }

    /// Serves one request, in a process of its own.
    private static func serve(_ socket: MessageSocket) -> Never {
        // Nothing that a decoder writes is for a terminal.
        dup2(STDOUT_FILENO, STDERR_FILENO)
        do throws(FileError) {
            // The other side may have given up meanwhile.
            guard let message = try socket.receive() else { _exit(0) }
            try socket.send(value: answer(to: message, on: socket))
            _exit(0)
        } catch {
            _exit(1)
        }
    }

    private static func answer(
        to message: MessageSocket.Message,
        on socket: MessageSocket
    ) -> ServiceAnswer {
        guard let wish = message.value(as: ServiceRequest.self), let file = message.files.first
        else { return .failure(.fileSystem(FileError("receive from", "socket", .invalidArgument))) }
        let archive = File(adopting: file, path: "archive")
        let cancellation = Cancellation()
        let events = UnpackEvents(
            progress: { bytes in
                do {
                    try socket.send(value: ServiceAnswer.progress(bytes))
                } catch {
                    // No other process waits for the result any more.
                    cancellation.request()
                }
            },
            isCancelled: { cancellation.isRequested }
        )
        do throws(ArchiveError) {
            switch wish.task {
            case .unpack(let path, let fileName, let limits):
                guard message.files.count == 2 else {
                    throw .fileSystem(FileError("receive from", "socket", .invalidArgument))
                }
                let request = UnpackRequest(
                    archive: archive.descriptor,
                    destination: Directory(adopting: message.files[1], path: FilePath(path)),
                    format: wish.format,
                    fileName: fileName,
                    limits: limits
                )
                try apply(limits)
                return .report(try request.unpackConfined(events, answeringOn: socket.descriptor))
            case .count:
                try apply(ArchiveInventory.limits)
                let inventory = try ArchiveInventory(
                    confinedTo: archive,
                    format: wish.format,
                    answeringOn: socket.descriptor
                )
                return .inventory(inventory)
            }
        } catch {
            return .failure(error)
        }
    }

    /// Decoders of the formats at hand do more than 4 MiB a second on any machine in use.
    private static func apply(_ limits: UnpackLimits) throws(ArchiveError) {
        let bytes = UInt64(clamping: limits.bytes.rawValue)
        let resources = ResourceLimits(fileSize: bytes, processorSeconds: 120 + (bytes >> 22))
        try ArchiveError.wrapping { () throws(FileError) in try resources.apply() }
    }
}
