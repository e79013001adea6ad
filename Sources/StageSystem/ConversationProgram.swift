import CLinux
import Glibc
package import SystemPackage

/// A child process that answers each line on its standard input with a line on its standard output.
///
/// Inherits the caller's environment, working directory, standard error and terminal, and no other open file.
/// Releasing the last reference ends it like ``finish(within:)``. Not thread-safe.
package final class ConversationProgram {
    /// The reason why the program gave no answer.
    @nonexhaustive
    package indirect enum Fault: Error, Hashable, Sendable {
        /// The program ended, or closed one of its streams.
        case ended
        /// The program did not answer within the time limit.
        case deadlineExceeded
        /// The answer is longer than the limit.
        case tooLong
    }

    /// The time that the program has to exit after its standard input is closed.
    package static let endLimit = Duration.seconds(5)

    private let process: ChildProcess
    private let input: FileDescriptor
    private let output: FileDescriptor
    private var received: [UInt8] = []
    private var isInputOpen = true
    private let terminal = Terminal.Attributes()

    /// Starts the program at a path, without arguments.
    ///
    /// - Throws: ``FileError`` if the program does not exist or the system refuses to start a process.
    package init(_ path: FilePath, environment: [String: String]) throws(FileError) {
        let (childInput, input) = try Self.pipe(path)
        let (output, childOutput): (FileDescriptor, FileDescriptor)
        do throws(FileError) {
            (output, childOutput) = try Self.pipe(path)
        } catch {
            Self.close(childInput, input)
            throw error
        }
        defer { Self.close(childInput, childOutput) }
        do throws(FileError) {
            process = ChildProcess(
                adopting: try Self.start(
                    path,
                    environment: environment,
                    input: childInput,
                    output: childOutput
                )
            )
        } catch {
            Self.close(input, output)
            throw error
        }
        self.input = input
        self.output = output
        // A program that neither reads nor writes must not block this thread: the pipes are nonblocking, and
        // poll(2) waits with a timeout.
        for file in [input, output] { _ = fcntl(file.rawValue, F_SETFL, O_NONBLOCK) }
    }

    deinit {
        _ = finish(within: Self.endLimit)
        Self.close(output)
    }

    /// Sends a line, and waits for the program's answer.
    ///
    /// - Parameters:
    ///   - line: The line, without its newline.
    ///   - limit: The maximum number of bytes of the answer.
    ///   - time: The time limit for sending and receiving together, in which the machine is not suspended.
    /// - Returns: The answer, without its newline.
    /// - Throws: ``Fault`` if the program gives no answer; after that, it gives no further answers.
    package func answer(
        to line: [UInt8],
        limit: Int,
        within time: Duration
    ) throws(Fault) -> [UInt8] {
        let deadline = SuspendingClock.now + time
        try send(line + [UInt8(ascii: "\n")], until: deadline)
        return try receive(limit: limit, until: deadline)
    }

    /// Closes the program's standard input and waits until it exits; after `time`, kills the program and its
    /// descendants.
    ///
    /// Restores the terminal attributes from before the start if the program had to be killed. A program that
    /// runs as another user and may not be killed keeps running, and this process stops waiting for it.
    ///
    /// - Returns: The exit status or signal, or `nil` if the program did not exit in time.
    package func finish(within time: Duration) -> ChildProcess.Ending? {
        if isInputOpen { Self.close(input) }
        isInputOpen = false
        if let ending = process.waitForEnd(within: time) { return ending }
        process.killTree()
        if process.waitForEnd(within: .seconds(1)) == nil { process.abandon() }
        terminal?.restore()
        return nil
    }

    private func send(
        _ line: [UInt8],
        until deadline: SuspendingClock.Instant
    ) throws(Fault) {
        guard isInputOpen else { throw .ended }
        var rest = line[...]
        while !rest.isEmpty {
            let count = unsafe rest.withUnsafeBytes { bytes in
                unsafe stage_write_pipe(input.rawValue, bytes.baseAddress, bytes.count)
            }
            if count > 0 { rest = rest.dropFirst(count) }
            guard count < 0 else { continue }
            guard errno == EAGAIN || errno == EINTR else { throw .ended }
            try wait(for: input, POLLOUT, until: deadline)
        }
    }

    private func receive(
        limit: Int,
        until deadline: SuspendingClock.Instant
    ) throws(Fault) -> [UInt8] {
        var buffer = [UInt8](repeating: 0, count: 4096)
        while true {
            if let end = received.firstIndex(of: UInt8(ascii: "\n")), end <= limit {
                let line = Array(received[..<end])
                received.removeSubrange(...end)
                return line
            }
            guard received.count <= limit else { throw .tooLong }
            let count = unsafe read(output.rawValue, &buffer, buffer.count)
            if count > 0 { received += buffer[..<count] }
            guard count <= 0 else { continue }
            guard count < 0, errno == EAGAIN || errno == EINTR else { throw .ended }
            try wait(for: output, POLLIN, until: deadline)
        }
    }

    /// Waits until a pipe is ready for `events`, at most until `deadline`.
    private func wait(
        for file: FileDescriptor,
        _ events: CInt,
        until deadline: SuspendingClock.Instant
    ) throws(Fault) {
        let left = deadline - .now
        guard left > .zero else { throw .deadlineExceeded }
        var pollRequest = pollfd(fd: file.rawValue, events: Int16(events), revents: 0)
        unsafe _ = poll(&pollRequest, 1, left.wholeMilliseconds)
    }

    private static func close(_ files: FileDescriptor...) {
        // Errors of closing a pipe are ignored: it buffers no data that could be lost.
        for file in files { _ = try? file.close() }
    }

    private static func pipe(
        _ path: FilePath
    ) throws(FileError) -> (reading: FileDescriptor, writing: FileDescriptor) {
        var ends: [CInt] = [-1, -1]
        try Directory.attempt("start", at: path) { unsafe stage_plain_pipe(&ends) }
        return (FileDescriptor(rawValue: ends[0]), FileDescriptor(rawValue: ends[1]))
    }

    private static func start(
        _ path: FilePath,
        environment: [String: String],
        input: FileDescriptor,
        output: FileDescriptor
    ) throws(FileError) -> pid_t {
        let arguments = CStrings([path.string])
        let variables = CStrings(environment.map { name, value in "\(name)=\(value)" })
        var process = pid_t()
        let status = unsafe path.withPlatformString { path in
            unsafe stage_spawn_conversation(
                &process,
                path,
                arguments.pointers,
                variables.pointers,
                input.rawValue,
                output.rawValue
            )
        }
        guard status == 0 else {
            throw FileError("start", path: path, errno: Errno(rawValue: status))
        }
        return process
    }
}
