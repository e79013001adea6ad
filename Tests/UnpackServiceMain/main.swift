import DecoderAttempts
import Glibc
import Logging
import StageArchive
import StageEngine
import StageModel
import StageSystem
import StagingService
import Synchronization
import SystemPackage

// Runs the service that tests start or, by the first argument, another task for which a test needs a process.
switch CommandLine.arguments.dropFirst().first {
case "without-landlock":
    precondition(decoder_without_landlock() == 0)
    exit(UnpackService.run())
case "without-seccomp":
    precondition(decoder_without_seccomp() == 0)
    exit(UnpackService.run())
case "with-another-thread":
    try SystemThread(name: "another") { while true { pause() } }.detach()
    exit(UnpackService.run())
case "attempts":
    try Attempts.make(on: MessageSocket(adopting: ChildProcess.channel))
    exit(0)
case "worker":
    try Worker.become(Array(CommandLine.arguments.dropFirst(2)))
case "user-thread":
    try await UserThread.run(on: MessageSocket(adopting: ChildProcess.channel))
    exit(0)
default:
    exit(UnpackService.run())
}

/// The system calls that a compromised decoder attempts, from both of its threads.
enum Attempts {
    private final class Notes {
        let prefix: String
        var lines: [String] = []
        init(prefix: String) { self.prefix = prefix }
    }

    /// Confines the process as the service does, and sends a line for each attempt.
    static func make(on socket: MessageSocket) throws {
        guard let message = try socket.receive(), message.files.count == 1 else { exit(2) }
        let directory = Directory(adopting: message.files[0], path: "directory")
        let (other, _) = try MessageSocket.pair()
        _ = try directory.file(creating: "own")
        let with = decoder_attempts(
            directory: directory.descriptor.rawValue,
            other_socket: other.descriptor.rawValue,
            parent: getppid()
        )
        _ = try Confinement.confineDecoder(
            beneath: directory,
            answeringOn: socket.descriptor
        )
        try socket.send(lines(prefix: "main", with))
        try SystemThread(name: "another") {
            // The test misses the lines if they cannot be sent.
            try? socket.send(lines(prefix: "other", with))
        }.join()
        let error = decoder_attempt_execve()
        try socket.send(Array("main: execve: \(error)".utf8))
    }

    private static func lines(prefix: String, _ with: decoder_attempts) -> [UInt8] {
        let notes = Notes(prefix: prefix)
        unsafe decoder_attempt_all(
            with,
            { context, name, error in
                guard let context = unsafe context, let name = unsafe name else { return }
                let notes = unsafe Unmanaged<Notes>.fromOpaque(context).takeUnretainedValue()
                notes.lines.append("\(notes.prefix): \(unsafe String(cString: name)): \(error)")
            },
            Unmanaged.passUnretained(notes).toOpaque()
        )
        return Array(notes.lines.joined(separator: "\n").utf8)
    }
}

/// An application of a user that unpacks on a thread of its own process.
enum UserThread {
    /// Becomes an unprivileged user, unpacks the archive in the message, and responds with the rights that the threads which report its
    /// progress still have.
    static func run(on socket: MessageSocket) async throws {
        guard let message = try socket.receive(), message.files.count == 2 else { exit(2) }
        guard decoder_become(65_534) == 0 else { exit(3) }
        let archive = File(adopting: message.files[0], path: "archive")
        let request = UnpackRequest(
            archive: archive.descriptor,
            destination: Directory(adopting: message.files[1], path: "destination"),
            format: .tar,
            limits: UnpackLimits(entries: 100, bytes: .mebibytes(64))
        )
        let unpacker = Unpacker(.thread, logger: Logger(label: "test"))
        let threads = Threads()
        let report = try await unpacker.unpack(request) { _ in threads.add() }
        let isConfined = report.confinement.restrictsFiles && report.confinement.filtersCalls
        try socket.send(Array("confined: \(isConfined), callbacks: \(threads.description)".utf8))
    }

    /// The rights of the threads that called the progress closure.
    private final class Threads: Sendable {
        private let states = Mutex<Set<String>>([])

        var description: String { states.withLock { $0.sorted().joined(separator: ", ") } }

        /// Adds the calling thread; a confined thread cannot open the file with its rights.
        func add() {
            let status = try? File.open(reading: "/proc/thread-self/status").readAll(limit: 1 << 16)
            let text = String(decoding: status ?? [], as: UTF8.self)
            let state = text.contains("Seccomp:\t0") ? "free" : "confined"
            states.withLock { _ = $0.insert(state) }
        }
    }
}

/// A compromised worker of the daemon.
enum Worker {
    /// Confines the process as a worker for a container and a manifest does, and executes the rest of the arguments.
    static func become(_ arguments: [String]) throws {
        var target = StagingTarget(manifests: [arguments[1]], environment: [:])
        target.container = FilePath(arguments[0])
        let request = StagingRequest(.named([]), of: target, options: StagerOptions(now: { 0 }))
        guard try request.sandbox().enter() == .all else { exit(3) }
        var strings: [UnsafeMutablePointer<CChar>?] = unsafe arguments.dropFirst(2).map {
            unsafe strdup($0)
        }
        unsafe strings.append(nil)
        unsafe _ = execv(arguments[2], strings)
        exit(4)
    }
}
