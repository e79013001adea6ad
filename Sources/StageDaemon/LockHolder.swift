import FoundationEssentials
import StageSystem
import SystemPackage

/// The daemon that holds the lock of a state directory, as it has written itself into the lock file.
///
/// A note may be older than the lock: a daemon that was killed leaves one, and a new one is written only after the lock was
/// taken.
struct LockHolder: Equatable {
    /// Number of the process.
    var process: Int32
    /// Set once the daemon is ending.
    var isEnding = false

    /// Digits of the largest number, so that each note overwrites the previous one in place.
    private static let width = 10

    /// Creates the note of a process.
    init(process: Int32, isEnding: Bool = false) {
        (self.process, self.isEnding) = (process, isEnding)
    }

    /// Reads a note; `nil` if it is not a valid one.
    init?(_ bytes: [UInt8]) {
        let words = String(decoding: bytes, as: UTF8.self).split { $0 == " " || $0 == "\n" }
        guard bytes.count == Self.width + 9, words.count == 2, let process = Int32(words[0]),
            process > 0
        else { return nil }
        self.init(process: process, isEnding: words[1] == "ending")
    }

    /// The note, on one line.
    var text: String {
        let digits = String(process)
        let zeros = String(repeating: "0", count: max(Self.width - digits.utf8.count, 0))
        return "\(zeros)\(digits) \(isEnding ? "ending " : "running")\n"
    }

    /// Indicates whether a daemon has the number of the process.
    ///
    /// If not, a process that the killed daemon has started may hold the lock for a moment, or a daemon of another container
    /// holds it.
    var isDaemon: Bool {
        // A process that has ended has no file.
        guard
            let text = try? File.open(reading: FilePath("/proc/\(process)/cmdline"))
                .readAll(limit: 1 << 20)
        else { return false }
        let program = String(decoding: text.prefix { $0 != 0 }, as: UTF8.self)
        return FilePath(program).lastComponent == "stagepackd"
    }
}

extension TransferFiles {
    /// Writes a note about this process, which holds the lock, into the lock file.
    func recordHolder(isEnding: Bool = false) {
        let process = ProcessInfo.processInfo.processIdentifier
        let note = LockHolder(process: process, isEnding: isEnding)
        // The note is only for other daemons' messages and patience: a full disk, for instance, does not matter.
        _ = try? root.file(updating: "lock", permissions: .privateFile)
            .write(Array(note.text.utf8).span, at: 0)
    }

    /// Returns the note in the lock file of a state directory; `nil` if there is none.
    static func lockHolder(of path: FilePath) -> LockHolder? {
        // Without the note, the message only lacks the process.
        guard let bytes = try? File.open(reading: path.appending("lock")).readAll(limit: 4096)
        else { return nil }
        return LockHolder(bytes)
    }
}
