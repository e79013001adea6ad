import Glibc
import StageModel
import Synchronization

/// Shows on a terminal how far packaging is.
final class PackagingDisplay: Sendable {
    private let pack: PackID
    private let total: ByteCount
    private let done = Atomic<Int64>(0)
    private let isDrawn = Atomic<Bool>(false)

    /// Creates a display for files of `total` bytes.
    init(_ pack: PackID, total: ByteCount) {
        self.pack = pack
        self.total = total
    }

    /// Takes note of how many bytes have been read.
    func take(_ bytes: ByteCount) { done.store(bytes.rawValue, ordering: .relaxed) }

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
        let bytes = ByteCount(done.load(ordering: .relaxed))
        let percent = total == .zero ? 100 : Int(100 * bytes.rawValue / total.rawValue)
        let line = "\(pack): \(bytes) of \(total) packed (\(percent) %)"
        let shown = line.prefix(max(Console.columns - 1, 20))
        Console.write("\r\u{1B}[2K\(shown)", to: STDERR_FILENO)
    }
}
