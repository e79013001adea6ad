import StageSystem
import Synchronization
import SystemPackage

/// High-water mark of task identifiers, in a file beside the journal.
///
/// The mark is durable before the transaction that assigns an identifier commits. So identifiers are never reused,
/// even if the journal was deleted or has lost its last commits. Only the daemon can write the file; names in users'
/// directories do not count.
final class TaskIDHighWaterMark: Sendable {
    private static let name: FilePath.Component = "task-numbers"
    /// Digits of the largest number, so that each mark overwrites the previous one in place.
    private static let width = 19

    private let directory: Directory
    private let state: Mutex<State>

    private struct State: ~Copyable {
        var file: File?
        var number: Int64?
    }

    /// Reads the mark; if it is missing or damaged, ``raise(to:)`` creates it.
    init(in directory: Directory) throws(FileError) {
        self.directory = directory
        var number: Int64?
        if let file = try directory.file(reading: FilePath(Self.name)) {
            number = Self.number(in: try file.readAll(limit: 4096))
        }
        state = Mutex(State(file: nil, number: number))
    }

    /// Highest identifier that may have been assigned; `nil` without a valid file.
    var number: Int64? { state.withLock { $0.number } }

    /// Raises the mark to `number`; returns once it is durable.
    func raise(to number: Int64) throws(FileError) {
        try state.withLock { state throws(FileError) in
            if let known = state.number, known >= number { return }
            if state.file == nil { state.file = try open() }
            let digits = String(number)
            let text = String(repeating: "0", count: Self.width - digits.utf8.count) + digits
            try state.file?.write(Array("\(text)\n".utf8).span, at: 0)
            try state.file?.synchronize()
            state.number = number
        }
    }

    private func open() throws(FileError) -> File {
        let file = try directory.file(updating: FilePath(Self.name), permissions: .privateFile)
        try file.setMode(.privateFile)
        try directory.synchronize()
        return file
    }

    private static func number(in text: [UInt8]) -> Int64? {
        guard text.count == width + 1, text.last == UInt8(ascii: "\n"),
            text.dropLast().allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) })
        else { return nil }
        // No daemon assigns so many numbers, and from a larger one the next would overflow.
        return Int64(String(decoding: text.dropLast(), as: UTF8.self)).flatMap {
            $0 < 1 << 62 ? $0 : nil
        }
    }
}
