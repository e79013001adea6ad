import CLinux
import Glibc
import StageModel
import StageSystem
package import SystemPackage

/// The service process of ``Unpacker/Mode/process(executable:arguments:)``.
package enum UnpackService {
    /// Forks a decoder process for each archive until the other side closes the socket, and returns the exit
    /// status.
    ///
    /// Each decoder confines itself before it reads a byte of its archive: no capabilities, no files except
    /// below its destination, few system calls, limits of memory, files and processor time. A fork has only
    /// the forking thread, so this process must be single-threaded: call this first.
    ///
    /// - Parameter descriptor: The socket; an ``Unpacker`` passes it as descriptor 3.
    /// - Returns: 0, or 1 if the system refused or the process has other threads.
    package static func run(
        _ descriptor: FileDescriptor = FileDescriptor(rawValue: 3)
    ) -> CInt {
        let socket = MessageSocket(adopting: descriptor)
        // With SIGXFSZ ignored, a file that grows too large is an error of write(2).
        _ = signal(SIGXFSZ, SIG_IGN)
        UTF8Locale.prepare()
        do {
            guard try Directory.open("/proc/self/task").entries().count == 1 else { return 1 }
            while let message = try socket.receive() {
                try socket.send(value: start(message, service: socket))
            }
            return 0
        } catch {
            // The other side has closed the socket, or the system refused; the exit status reports it.
            return 1
        }
    }

    /// Forks the process that serves the socket in a message.
    private static func start(
        _ message: MessageSocket.Message,
        service: MessageSocket
    ) -> ServiceStart {
        defer { message.closeFiles() }
        guard let channel = message.files.first else {
            return .failure(FileError("receive from", path: "socket", errno: .invalidArgument))
        }
        let identifier = stage_clone_sibling()
        if identifier == 0 {
            close(service.descriptor.rawValue)
            serve(MessageSocket(adopting: channel))
        }
        return identifier > 0
            ? .process(identifier)
            : .failure(FileError("start", path: FilePath("unpack-service"), errno: .current))
    }

    /// Serves one request, in its own process.
    private static func serve(_ socket: MessageSocket) -> Never {
        // A decoder must not write to the terminal.
        dup2(STDOUT_FILENO, STDERR_FILENO)
        do throws(FileError) {
            // The other side may have cancelled meanwhile.
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
        guard let serviceRequest = message.value(as: ServiceRequest.self),
            let file = message.files.first
        else {
            return .failure(
                .fileSystem(FileError("receive from", path: "socket", errno: .invalidArgument))
            )
        }
        let archive = File(adopting: file, path: "archive")
        let cancellation = Cancellation()
        let events = UnpackEvents(
            progress: { bytes in
                do {
                    try socket.send(value: ServiceAnswer.progress(bytes))
                } catch {
                    // The requesting process has ended, so the result is not needed.
                    cancellation.request()
                }
            },
            isCancelled: { cancellation.isRequested }
        )
        do throws(ArchiveError) {
            switch serviceRequest.task {
            case .unpack(let path, let fileName, let limits):
                guard message.files.count == 2 else {
                    throw .fileSystem(
                        FileError("receive from", path: "socket", errno: .invalidArgument)
                    )
                }
                let request = UnpackRequest(
                    archive: archive.descriptor,
                    destination: Directory(adopting: message.files[1], path: FilePath(path)),
                    format: serviceRequest.format,
                    fileName: fileName,
                    limits: limits
                )
                try apply(limits)
                return .report(try request.unpackConfined(events, answeringOn: socket.descriptor))
            case .count:
                try apply(ArchiveInventory.limits)
                let inventory = try ArchiveInventory(
                    confinedTo: archive,
                    format: serviceRequest.format,
                    answeringOn: socket.descriptor
                )
                return .inventory(inventory)
            }
        } catch {
            return .failure(error)
        }
    }

    /// Sets resource limits: of processor time, two minutes and a second for each 4 MiB of content, which a decoder of any
    /// format writes in less.
    private static func apply(_ limits: UnpackLimits) throws(ArchiveError) {
        let bytes = UInt64(clamping: limits.bytes.rawValue)
        let resources = ResourceLimits(fileSize: bytes, cpuSecondLimit: 120 + (bytes >> 22))
        try ArchiveError.wrapping { () throws(FileError) in try resources.apply() }
    }
}
