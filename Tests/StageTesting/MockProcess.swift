import Glibc
import SystemPackage

/// A program with which a test exchanges lines, and that ends when the test does.
///
/// Its standard input and output are one socket: the program must end when it reads the end of the stream, as happens when the
/// process of the tests ends.
final class MockProcess: Sendable {
    /// A failure of the program, with a message.
    struct Failure: Error, CustomStringConvertible {
        var description: String
    }

    private let process: pid_t
    private let socket: CInt

    /// The time in which the program must respond.
    private static let timeout = Duration.seconds(120)

    /// Starts a program, the first of `command`.
    init(_ command: [String]) throws(Failure) {
        var ends: [CInt] = [-1, -1]
        let kind = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        guard unsafe socketpair(AF_UNIX, kind, 0, &ends) == 0 else {
            throw Failure(description: "no socket could be made: \(Errno(rawValue: errno))")
        }
        defer { close(ends[1]) }
        socket = ends[0]
        var actions = unsafe posix_spawn_file_actions_t()
        unsafe posix_spawn_file_actions_init(&actions)
        defer { unsafe _ = posix_spawn_file_actions_destroy(&actions) }
        for standard in CInt(0)...1 {
            unsafe posix_spawn_file_actions_adddup2(&actions, ends[1], standard)
        }
        // The tests' threads may have blocked signals that a shell needs to wait for its children.
        var attributes = posix_spawnattr_t()
        unsafe posix_spawnattr_init(&attributes)
        defer { unsafe _ = posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        unsafe sigemptyset(&none)
        unsafe posix_spawnattr_setsigmask(&attributes, &none)
        unsafe posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
        var strings: [UnsafeMutablePointer<CChar>?] = unsafe command.map { unsafe strdup($0) }
        unsafe strings.append(nil)
        defer { for index in unsafe strings.indices { unsafe free(strings[index]) } }
        var process = pid_t()
        let status = unsafe posix_spawn(
            &process,
            command[0],
            &actions,
            &attributes,
            strings,
            environ
        )
        guard status == 0 else {
            // The properties are not all set yet, so 'deinit' does not run.
            close(ends[0])
            throw Failure(description: "'\(command[0])' cannot run: \(Errno(rawValue: status))")
        }
        self.process = process
    }

    deinit {
        // The program reads the end of the stream, and exits; its status does not matter.
        close(socket)
        var status: CInt = 0
        while unsafe waitpid(process, &status, 0) < 0, errno == EINTR {}
    }

    /// Writes a line to the program.
    func write(_ line: String) throws(Failure) {
        let bytes = Array("\(line)\n".utf8)
        guard unsafe send(socket, bytes, bytes.count, CInt(MSG_NOSIGNAL)) == bytes.count
        else { throw Failure(description: "the program has ended") }
    }

    /// Waits for a line of the program.
    func readLine() throws(Failure) -> String {
        let deadline = ContinuousClock.now + Self.timeout
        var line: [UInt8] = []
        while ContinuousClock.now < deadline {
            var wish = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
            guard unsafe poll(&wish, 1, 100) > 0 else { continue }
            var byte: UInt8 = 0
            guard unsafe recv(socket, &byte, 1, 0) == 1 else {
                throw Failure(description: "the program has ended")
            }
            if byte == UInt8(ascii: "\n") { return String(decoding: line, as: UTF8.self) }
            line.append(byte)
        }
        throw Failure(description: "the program says nothing")
    }
}
