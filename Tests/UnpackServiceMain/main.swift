import DecoderAttempts
import Glibc
import Logging
import StageArchive
import StageModel
import StageSystem
import SystemPackage

// The service that tests start, and, by its first argument, what a test needs a process of its own for.
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
case "user-thread":
    try await UserThread.run(on: MessageSocket(adopting: ChildProcess.channel))
    exit(0)
default:
    exit(UnpackService.run())
}

/// The attempts of a decoder that was taken over, from both of its threads.
enum Attempts {
    private final class Notes {
        let prefix: String
        var lines: [String] = []
        init(prefix: String) { self.prefix = prefix }
    }

    /// Confines the process as the service does, and answers with a line for each attempt.
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

/// An application of a user that unpacks on a thread of its own.
enum UserThread {
    /// Becomes a user without rights, unpacks the archive of the message, and answers with what the
    /// process may still do.
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
        var told = 0
        for await count in progress(of: unpacker, request) { told = count }
        let filtered = try Directory.open("/proc/self/task").entries().filter { task in
            let path = FilePath("/proc/self/task").appending(task.name).appending("status")
            let text = try File.open(reading: path).readAll(limit: 1 << 16)
            return String(decoding: text, as: UTF8.self).contains("Seccomp:\t2")
        }
        try socket.send(Array("told: \(told > 0), filtered threads: \(filtered.count)".utf8))
    }

    /// How much has been unpacked; each value wakes a thread of Swift's pool.
    private static func progress(
        of unpacker: Unpacker,
        _ request: UnpackRequest
    ) -> AsyncStream<Int> {
        AsyncStream { continuation in
            Task {
                let report = try? await unpacker.unpack(request) { bytes in
                    continuation.yield(Int(bytes.rawValue))
                    // Another wakes another one.
                    Task { continuation.yield(Int(bytes.rawValue)) }
                }
                continuation.yield(report?.confinement.isRestricted == true ? 1 : 0)
                continuation.finish()
            }
        }
    }
}

extension Confinement {
    fileprivate var isRestricted: Bool { restrictsFiles && filtersCalls }
}
