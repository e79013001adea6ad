import Glibc
import StageModel
import Synchronization

/// Shows on a terminal how far packaging is.
final class PackagingDisplay: Sendable {
    private let subject: String
    private let total: ByteCount
    private let done = Atomic<Int64>(0)
    private let compared = Atomic<Int64>(0)
    private let comparable = Atomic<Int64>(0)
    private let archived = Atomic<Int64>(-1)
    private let isDrawn = Atomic<Bool>(false)

    /// Creates a display for files of `total` bytes of a pack or an index with this name.
    init(_ subject: String, total: ByteCount) {
        self.subject = subject
        self.total = total
    }

    /// Takes note of how many bytes have been read.
    func take(_ bytes: ByteCount) { done.store(bytes.rawValue, ordering: .relaxed) }

    /// Takes note of how many bytes, of how many, have been compared with an older version.
    func take(compared bytes: ByteCount, of total: ByteCount) {
        compared.store(bytes.rawValue, ordering: .relaxed)
        comparable.store(total.rawValue, ordering: .relaxed)
    }

    /// Takes note of how many bytes are in the archive of an indexed pack.
    func take(archived bytes: ByteCount) {
        archived.store(bytes.rawValue, ordering: .relaxed)
    }

    /// Runs `body` and draws a line ten times a second until it returns.
    func whileShown<Result: Sendable>(
        isShown: Bool,
        _ body: @Sendable () async -> Result
    ) async -> Result {
        guard isShown else { return await body() }
        return await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.drawRepeatedly() }
            let result = await body()
            group.cancelAll()
            await group.waitForAll()
            if isDrawn.load(ordering: .relaxed) { Console.write("\r\u{1B}[2K", to: STDERR_FILENO) }
            return result
        }
    }

    private func drawRepeatedly() async {
        // What ends within a moment needs no line.
        do {
            try await Task.sleep(for: .milliseconds(300))
            while true {
                draw()
                try await Task.sleep(for: .milliseconds(100))
            }
        } catch {
            // Cancelled: everything has ended.
        }
    }

    private func draw() {
        isDrawn.store(true, ordering: .relaxed)
        let shown = line.prefix(max(Console.columns - 1, 20))
        Console.write("\r\u{1B}[2K\(shown)", to: STDERR_FILENO)
    }

    private var line: String {
        let archived = archived.load(ordering: .relaxed)
        if archived >= 0 {
            let bytes = ByteCount(archived)
            return "\(subject): \(bytes) of \(total) archived (\(percent(bytes, of: total)) %)"
        }
        let comparable = ByteCount(comparable.load(ordering: .relaxed))
        if comparable != .zero {
            let bytes = ByteCount(compared.load(ordering: .relaxed))
            let share = "\(bytes) of \(comparable) (\(percent(bytes, of: comparable)) %)"
            return "\(subject): \(share) compared with an older version"
        }
        let bytes = ByteCount(done.load(ordering: .relaxed))
        return "\(subject): \(bytes) of \(total) packed (\(percent(bytes, of: total)) %)"
    }

    private func percent(_ part: ByteCount, of whole: ByteCount) -> Int64 {
        whole == .zero ? 100 : 100 * part.rawValue / whole.rawValue
    }
}
