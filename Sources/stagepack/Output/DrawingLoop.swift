import StageDisplay
import StageSystem
import Synchronization

/// Redraws lines at the terminal ten times a second, until it ends.
final class DrawingLoop: Sendable {
    private let lines: @Sendable () -> [StyledText]
    private let task = Mutex<Task<Void, Never>?>(nil)
    private let hasEnded = Atomic(false)

    /// Starts drawing after 0.3 seconds, so that short operations draw no lines.
    init(_ lines: @escaping @Sendable () -> [StyledText]) {
        self.lines = lines
        let task = Task { [weak self] in
            var pause = Duration.milliseconds(300)
            // Cancelled: the loop has ended.
            while (try? await Task.sleep(for: pause)) != nil {
                // Writing to a terminal may block.
                await withBlockingThread { [weak self] in self?.draw() }
                pause = .milliseconds(100)
            }
        }
        self.task.withLock { $0 = task }
    }

    /// Removes the lines, and stops drawing.
    func end() {
        hasEnded.store(true, ordering: .releasing)
        task.withLock { $0.take() }?.cancel()
        Console.show([])
    }

    private func draw() {
        let lines = lines()
        Console.show(lines) { !hasEnded.load(ordering: .acquiring) }
    }
}
