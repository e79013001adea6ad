import CLinux
import Glibc
import SystemPackage

/// A pipe, whose ends are closed with the last reference.
@safe final class Pipe {
    /// The nonblocking end to read from.
    let reading: CInt
    /// The end to write to, -1 once it is closed.
    private(set) var writing: CInt

    init() throws(FileError) {
        var ends: [CInt] = [-1, -1]
        try Directory.attempt("connect", at: "pipe") { unsafe stage_pipe(&ends) }
        reading = ends[0]
        writing = ends[1]
    }

    deinit {
        close(reading)
        closeWriting()
    }

    /// Closes the end to write to.
    func closeWriting() {
        if writing >= 0 { close(writing) }
        writing = -1
    }
}

/// Reads from a pipe, and keeps the last bytes up to a limit.
struct StreamReader {
    private let pipe: Pipe
    private let limit: Int
    /// The last bytes, at most twice the limit.
    private var kept: [UInt8] = []
    /// The number of bytes that were read in all.
    private(set) var count = 0
    /// Indicates whether the pipe has ended.
    private(set) var hasEnded = false

    init(_ pipe: Pipe, limit: Int) {
        self.pipe = pipe
        self.limit = limit
    }

    /// The last bytes, at most as many as the limit.
    var bytes: [UInt8] { Array(kept.suffix(limit)) }

    /// Indicates whether more bytes were read than the limit allows.
    var isOverLimit: Bool { count > limit }

    /// The descriptor to poll; negative after the end, which poll(2) ignores.
    var pollRequest: pollfd {
        pollfd(fd: hasEnded ? -1 : pipe.reading, events: Int16(POLLIN), revents: 0)
    }

    /// Reads the available bytes, at most 64 KiB.
    ///
    /// - Returns: Whether bytes were available.
    mutating func take() -> Bool {
        guard !hasEnded else { return false }
        var buffer = [UInt8](repeating: 0, count: 64 << 10)
        let taken = unsafe read(pipe.reading, &buffer, buffer.count)
        guard taken > 0 else {
            hasEnded = taken == 0 || (errno != EAGAIN && errno != EINTR)
            return false
        }
        count += taken
        kept += buffer[..<taken]
        if kept.count > 2 * limit { kept.removeFirst(kept.count - limit) }
        return true
    }
}

/// Waits until a program ends, and reads its output meanwhile.
struct ProgramWatch {
    /// The program's supervisor, a child process that no other code reaps.
    let supervisor: pid_t
    /// The program's standard output.
    var output: StreamReader
    /// The program's standard error.
    var errors: StreamReader
    /// The space to keep free on the file systems that the program writes to.
    var reserves: [SpaceReserve] = []

    /// The polling interval where the kernel has no pidfd.
    private static let interval = Duration.milliseconds(20)
    /// The interval at which free space is checked.
    private static let spaceInterval = Duration.milliseconds(100)

    /// Waits until all processes of the program have ended, its deadline has passed, or it has written too
    /// much to its output or to a file system.
    ///
    /// Does not reap the supervisor.
    mutating func wait(until deadline: SuspendingClock.Instant) -> SandboxedProgram.Ending {
        let end = stage_open_process(supervisor)
        defer { if end >= 0 { close(end) } }
        while true {
            if stage_has_ended(supervisor) != 0 {
                drain()
                return output.isOverLimit
                    ? .tooMuchOutput : .ended(.init(of: supervisor, isKept: true))
            }
            if output.isOverLimit { return .tooMuchOutput }
            if reserves.areReached { return .diskNearlyFull }
            let left = deadline - .now
            guard left > .zero else { return .deadlineExceeded }
            var pause = end >= 0 ? left : min(left, Self.interval)
            if !reserves.isEmpty { pause = min(pause, Self.spaceInterval) }
            var pollRequests = [
                output.pollRequest, errors.pollRequest,
                pollfd(fd: end, events: Int16(POLLIN), revents: 0),
            ]
            unsafe _ = poll(&pollRequests, nfds_t(pollRequests.count), pause.wholeMilliseconds)
            _ = output.take()
            _ = errors.take()
        }
    }

    /// Reads the rest of the pipes after all writers have ended.
    private mutating func drain() {
        while !output.isOverLimit, output.take() {}
        // A process that survived its signal, on a stuck file system, could keep writing: reading stops after
        // more than a pipe can hold.
        for _ in 0..<16 where !errors.take() { break }
    }
}

extension ChildProcess.Ending {
    /// Waits until a child process that is not reaped yet has ended; reaps it unless `isKept` is set.
    init(of process: pid_t, isKept: Bool) {
        var signal: CInt = 0
        let status = unsafe stage_ending(process, isKept ? 1 : 0, &signal)
        self =
            if status < 0 { .unknown } else if signal != 0 { .signalled(Int(signal)) } else {
                .exited(Int(status))
            }
    }
}
