import CLinux
import Glibc
public import SystemPackage

/// A child process that answers lines on its standard output to lines on its standard input.
///
/// It has the caller's environment, working directory, standard error and terminal, and no other open
/// file. It is killed and reaped when the last reference goes. Belongs to one thread.
public final class ConversationProgram {
    private let process: ChildProcess
    private let input: FileDescriptor
    private let output: FileDescriptor
    private var received: [UInt8] = []
    private var isInputOpen = true

    /// Starts the program at a path, without arguments.
    ///
    /// - Throws: ``FileError`` if there is no such program, or the system refuses a process.
    public init(_ path: FilePath, environment: [String: String]) throws(FileError) {
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
    }

    deinit {
        if isInputOpen { Self.close(input) }
        Self.close(output)
    }

    /// Sends a line; returns `false` if the program does not read any more.
    public func send(_ line: [UInt8]) -> Bool {
        // The program's end is told where its answer is read.
        isInputOpen && (try? input.writeAll(line + [UInt8(ascii: "\n")])) != nil
    }

    /// Waits for a line of at most `limit` bytes and returns it without its end, or `nil` if the program
    /// closed its output or sent more.
    public func receive(limit: Int) -> [UInt8]? {
        var buffer = [UInt8](repeating: 0, count: 4096)
        while true {
            if let end = received.firstIndex(of: UInt8(ascii: "\n")) {
                let line = Array(received[..<end])
                received.removeSubrange(...end)
                return line
            }
            guard received.count <= limit else { return nil }
            let count = unsafe buffer.withUnsafeMutableBytes { bytes in
                // What cannot be read is as if it had ended.
                (try? unsafe output.read(into: bytes)) ?? 0
            }
            guard count > 0 else { return nil }
            received += buffer[..<count]
        }
    }

    /// Closes the program's standard input, and waits for its end.
    public func finish() -> ChildProcess.Ending {
        if isInputOpen { Self.close(input) }
        isInputOpen = false
        return process.waitForEnd()
    }

    private static func close(_ files: FileDescriptor...) {
        // A pipe has nothing to lose.
        for file in files { _ = try? file.close() }
    }

    private static func pipe(
        _ path: FilePath
    ) throws(FileError) -> (reading: FileDescriptor, writing: FileDescriptor) {
        var ends: (CInt, CInt) = (-1, -1)
        let status = unsafe withUnsafeMutablePointer(to: &ends) { ends in
            unsafe ends.withMemoryRebound(to: CInt.self, capacity: 2) {
                unsafe stage_plain_pipe($0)
            }
        }
        guard status == 0 else { throw FileError("start", path, Errno(rawValue: errno)) }
        return (FileDescriptor(rawValue: ends.0), FileDescriptor(rawValue: ends.1))
    }

    private static func start(
        _ path: FilePath,
        environment: [String: String],
        input: FileDescriptor,
        output: FileDescriptor
    ) throws(FileError) -> pid_t {
        let arguments: [UnsafeMutablePointer<CChar>?] = unsafe [strdup(path.string), nil]
        var variables: [UnsafeMutablePointer<CChar>?] = unsafe environment.map { name, value in
            unsafe strdup("\(name)=\(value)")
        }
        unsafe variables.append(nil)
        defer {
            for index in unsafe arguments.indices { unsafe free(arguments[index]) }
            for index in unsafe variables.indices { unsafe free(variables[index]) }
        }
        var process = pid_t()
        let status = unsafe path.withPlatformString { path in
            unsafe stage_spawn_conversation(
                &process,
                path,
                arguments,
                variables,
                input.rawValue,
                output.rawValue
            )
        }
        guard status == 0 else { throw FileError("start", path, Errno(rawValue: status)) }
        return process
    }
}
