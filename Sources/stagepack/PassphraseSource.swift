import Glibc
import StageDigest
import StageModel
import StagePack
import StageSystem
import SystemPackage

/// The passphrases of encrypted keys, from a file descriptor or the terminal.
final class PassphraseSource {
    private let descriptor: Int32?
    private var lines: [[UInt8]]?

    /// Maximum number of bytes that are read from a descriptor.
    private static let limit = 16 << 10

    init(descriptor: Int32?) { self.descriptor = descriptor }

    deinit {
        for index in lines?.indices ?? 0..<0 { lines?[index].wipe() }
    }

    /// Returns the passphrase of an existing key.
    func passphrase(of key: String) throws(CommandFailure) -> [UInt8] {
        if descriptor != nil { return try nextLine() }
        return try ask("Passphrase of \(key.forDisplay()): ")
    }

    /// Returns the PIN of the token that contains a key.
    func pin(of key: String) throws(CommandFailure) -> [UInt8] {
        if descriptor != nil { return try nextLine() }
        return try ask("PIN of \(key.forDisplay()): ")
    }

    /// Returns the passphrase for a new key; at the terminal, it must be typed twice.
    func newPassphrase(of key: String) throws(CommandFailure) -> [UInt8] {
        let passphrase: [UInt8]
        if descriptor != nil {
            passphrase = try nextLine()
        } else {
            passphrase = try ask("New passphrase of \(key.forDisplay()): ")
            var again = try ask("The same passphrase again: ")
            defer { again.wipe() }
            guard passphrase == again else {
                throw .usage("the two passphrases differ")
            }
        }
        guard !passphrase.isEmpty else {
            throw .usage("the passphrase is empty; '--unencrypted' makes a key without one")
        }
        return passphrase
    }

    private func ask(_ prompt: String) throws(CommandFailure) -> [UInt8] {
        let line: [UInt8]?
        do throws(FileError) {
            line = try Terminal.readSecret(prompt: prompt)
        } catch {
            throw CommandFailure(
                status: .usage,
                message: "there is no terminal to ask for a passphrase or PIN: \(error)",
                hint: "pass it on a file descriptor: '--passphrase-fd 3 3< FILE'",
                retryAdvice: .never
            )
        }
        guard let line else {
            throw CommandFailure(
                status: .interrupted,
                message: "no passphrase or PIN was entered",
                hint: nil,
                retryAdvice: .now
            )
        }
        return line
    }

    /// Returns the next line from the descriptor; repeats the last one.
    private func nextLine() throws(CommandFailure) -> [UInt8] {
        if lines == nil { lines = try read() }
        guard let first = lines?.first else {
            throw .usage("--passphrase-fd: expected a line with a passphrase, found none")
        }
        if lines?.count ?? 0 > 1 { lines?.removeFirst() }
        return first
    }

    private func read() throws(CommandFailure) -> [[UInt8]] {
        let file = FileDescriptor(rawValue: descriptor ?? 0)
        var content: [UInt8] = []
        defer { content.wipe() }
        content.reserveCapacity(Self.limit)
        var buffer = [UInt8](repeating: 0, count: Self.limit)
        defer { buffer.wipe() }
        while content.count < Self.limit {
            let remaining = Self.limit - content.count
            let count = unsafe buffer.withUnsafeMutableBytes { bytes in
                unsafe Glibc.read(file.rawValue, bytes.baseAddress, min(remaining, bytes.count))
            }
            if count < 0 {
                if errno == EINTR { continue }
                throw .usage(
                    "--passphrase-fd \(file.rawValue): \(Errno(rawValue: errno))"
                )
            }
            if count == 0 { break }
            content += buffer[..<count]
        }
        // Signing programs must not inherit the descriptor.
        _ = fcntl(file.rawValue, F_SETFD, FD_CLOEXEC)
        var lines = content.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
            // Accepts lines that end in CR LF.
            .map { Array($0.last == UInt8(ascii: "\r") ? $0.dropLast() : $0) }
        if lines.last?.isEmpty == true { lines.removeLast() }
        return lines
    }
}
