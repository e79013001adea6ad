import CLinux
import Glibc
import SystemPackage

/// A pipe with both ends open at first; what is open is closed when its owner goes.
@safe final class Pipe {
    /// The end to read from; reading does not wait.
    let reading: CInt
    /// The end to write to, -1 once it is closed.
    private(set) var writing: CInt

    init() throws(FileError) {
        var ends: [CInt] = [-1, -1]
        try Directory.attempt("connect", "pipe") { unsafe stage_pipe(&ends) }
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

/// What has come out of a pipe: all of it, or the last of it.
struct StreamReader {
    private let pipe: Pipe
    private let limit: Int
    /// The last bytes, twice the limit at most.
    private var kept: [UInt8] = []
    /// How many bytes have come in all.
    private(set) var count = 0
    /// Whether nothing more comes.
    private(set) var hasEnded = false

    init(_ pipe: Pipe, limit: Int) {
        self.pipe = pipe
        self.limit = limit
    }

    /// The last bytes, as many as the limit allows.
    var bytes: [UInt8] { Array(kept.suffix(limit)) }

    /// Whether more came than the limit allows.
    var isOverLimit: Bool { count > limit }

    /// What poll(2) has to look at; a descriptor below zero is passed over.
    var wish: pollfd {
        pollfd(fd: hasEnded ? -1 : pipe.reading, events: Int16(POLLIN), revents: 0)
    }

    /// Takes what is there, 64 KiB at most.
    ///
    /// - Returns: whether there was something.
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

/// Waits for the end of a program while it reads what the program writes.
struct ProgramWatch {
    /// The program's supervisor, a child that no other code reaps.
    let supervisor: pid_t
    /// What it writes to standard output.
    var output: StreamReader
    /// What it writes to standard error.
    var errors: StreamReader
    /// The space that stays free of the file systems that it writes to.
    var reserves: [SpaceReserve] = []

    /// How often the end is looked for where the kernel cannot tell of it.
    private static let interval = Duration.milliseconds(20)
    /// The interval in which free space is looked at.
    private static let spaceInterval = Duration.milliseconds(100)

    /// Waits until all processes of the program have ended, or its time is up, or it wrote too much, to
    /// its output or to a file system.
    ///
    /// The supervisor is not reaped.
    mutating func wait(until deadline: ContinuousClock.Instant) -> SandboxedProgram.Ending {
        let end = stage_open_process(supervisor)
        defer { if end >= 0 { close(end) } }
        while true {
            if stage_has_ended(supervisor) != 0 {
                drain()
                return output.isOverLimit ? .tooMuchOutput : .ended(.init(of: supervisor))
            }
            if output.isOverLimit { return .tooMuchOutput }
            if reserves.areReached { return .diskNearlyFull }
            let left = deadline - .now
            guard left > .zero else { return .deadlineExceeded }
            var pause = end >= 0 ? left : min(left, Self.interval)
            if !reserves.isEmpty { pause = min(pause, Self.spaceInterval) }
            var wishes = [
                output.wish, errors.wish, pollfd(fd: end, events: Int16(POLLIN), revents: 0),
            ]
            unsafe _ = poll(&wishes, nfds_t(wishes.count), pause.milliseconds)
            _ = output.take()
            _ = errors.take()
        }
    }

    /// Takes what is left in the pipes, to which no process writes any more.
    private mutating func drain() {
        while !output.isOverLimit, output.take() {}
        // A process that did not die of its signal, as the file system is stuck that it uses, could
        // write for ever: a pipe holds less.
        for _ in 0..<16 where !errors.take() { break }
    }
}

extension ChildProcess.Ending {
    /// How a process ended that is not reaped yet.
    init(of process: pid_t) {
        var signal: CInt = 0
        let status = unsafe stage_ending(process, &signal)
        self = signal != 0 ? .signalled(Int(signal)) : .exited(Int(status))
    }
}

extension Duration {
    /// Whole milliseconds, rounded up, as poll(2) takes them.
    var milliseconds: CInt {
        let (seconds, attoseconds) = components
        let rest = attoseconds / 1_000_000_000_000_000
        return CInt(clamping: seconds.multipliedReportingOverflow(by: 1000).partialValue + rest + 1)
    }
}
