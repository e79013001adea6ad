import Glibc
import SystemPackage

/// The controlling terminal of this process.
package enum Terminal {
    /// Reads a line without echo, such as a passphrase.
    ///
    /// Returns `nil` if the user cancels with Ctrl-C or Ctrl-D, or types more than 1,024 bytes. Restores the
    /// terminal attributes before it returns.
    ///
    /// - Throws: ``FileError`` if the process has no terminal.
    package static func readSecret(prompt: String) throws(FileError) -> [UInt8]? {
        let path: FilePath = "/dev/tty"
        let file: FileDescriptor
        do {
            file = try FileDescriptor.open(path, .readWrite, options: [.closeOnExec])
        } catch {
            throw FileError("open", path: path, errno: (error as? Errno) ?? .noSuchAddressOrDevice)
        }
        // Errors of closing a terminal are ignored: it buffers no data.
        defer { _ = try? file.close() }
        var before = termios()
        guard unsafe tcgetattr(file.rawValue, &before) == 0 else {
            throw FileError("read", path: path, errno: Errno(rawValue: errno))
        }
        var quiet = before
        // Signal keys are disabled: a killed process would leave the terminal without echo.
        quiet.c_lflag &= ~tcflag_t(ECHO | ICANON | ISIG | IEXTEN)
        quiet.c_cc.5 = 0
        quiet.c_cc.6 = 1
        guard unsafe tcsetattr(file.rawValue, TCSAFLUSH, &quiet) == 0 else {
            throw FileError("read", path: path, errno: Errno(rawValue: errno))
        }
        defer { unsafe _ = tcsetattr(file.rawValue, TCSAFLUSH, &before) }
        write(prompt, to: file)
        defer { write("\n", to: file) }
        return line(from: file)
    }

    /// Saved terminal attributes, to restore them later.
    ///
    /// A program that is killed while it reads a passphrase leaves the terminal without echo.
    package final class Attributes {
        private let file: FileDescriptor
        private var attributes = termios()

        /// Saves the current attributes; `nil` if the process has no terminal.
        package init?() {
            let path: FilePath = "/dev/tty"
            guard
                let file = try? FileDescriptor.open(path, .readWrite, options: [.closeOnExec])
            else { return nil }
            self.file = file
            guard unsafe tcgetattr(file.rawValue, &attributes) == 0 else {
                _ = try? file.close()
                return nil
            }
        }

        deinit { _ = try? file.close() }

        /// Restores the attributes, unless this process is in the background.
        package func restore() {
            // In the background, tcsetattr(3) would stop this process.
            guard tcgetpgrp(file.rawValue) == getpgrp() else { return }
            var attributes = attributes
            unsafe _ = tcsetattr(file.rawValue, TCSANOW, &attributes)
        }
    }

    private static func write(_ text: String, to file: FileDescriptor) {
        // A prompt that cannot be shown does not prevent reading.
        _ = try? file.writeAll(text.utf8)
    }

    private static func line(from file: FileDescriptor) -> [UInt8]? {
        var line: [UInt8] = []
        line.reserveCapacity(1024)
        while line.count <= 1024 {
            var byte: UInt8 = 0
            let count = unsafe withUnsafeMutableBytes(of: &byte) { bytes in
                (try? unsafe file.read(into: bytes)) ?? 0
            }
            guard count == 1 else { return nil }
            switch byte {
            case UInt8(ascii: "\n"), UInt8(ascii: "\r"): return line
            // Ctrl-C and Ctrl-D
            case 3, 4: return nil
            // Backspace and Delete
            case 8, 127: line.removeLastCharacter()
            // Ctrl-U
            case 21: line.removeAll(keepingCapacity: true)
            default: line.append(byte)
            }
        }
        return nil
    }
}

extension [UInt8] {
    /// Removes the last character of UTF-8 text.
    fileprivate mutating func removeLastCharacter() {
        while let byte = popLast(), byte & 0xC0 == 0x80 {}
    }
}
