import StageModel
import Synchronization
import Testing

@testable import StageTransfer

/// Transfers that wait for a receive window.
struct ReceiveWindowTests {
    /// The transfers that a window resumed.
    private final class Wakes: Sendable {
        private let names = Mutex<[String]>([])

        /// The names of the transfers so far, in alphabetical order.
        var sorted: [String] { names.withLock { $0.sorted() } }

        func add(_ name: String) { names.withLock { $0.append(name) } }
    }

    private final class Transfer {}

    private let window = ReceiveWindow(limit: ByteCount(10))
    private let wakes = Wakes()
    private let first = Transfer()
    private let second = Transfer()

    private func isOpen(for transfer: Transfer, _ name: String) -> Bool {
        window.isOpen(for: transfer, orElse: { [wakes] in wakes.add(name) })
    }

    @Test func aFullWindowWakesEachTransferOnceWhenItOpens() {
        #expect(isOpen(for: first, "early"))
        window.add(12)
        for _ in 0..<3 { #expect(!isOpen(for: first, "first")) }
        #expect(!isOpen(for: second, "second"))
        window.remove(2)
        #expect(wakes.sorted.isEmpty, "ten bytes fill the window")
        window.remove(1)
        #expect(wakes.sorted == ["first", "second"])
        window.remove(9)
        #expect(wakes.sorted == ["first", "second"])
        #expect(isOpen(for: first, "late"))
    }

    @Test func theEndOfAPauseWakesTransfersUnlessTheWindowIsFull() {
        window.setPaused(true)
        #expect(!isOpen(for: first, "first"))
        window.add(10)
        window.setPaused(false)
        #expect(wakes.sorted.isEmpty)
        window.setPaused(true)
        window.remove(10)
        #expect(wakes.sorted.isEmpty)
        window.setPaused(false)
        #expect(wakes.sorted == ["first"])
    }

    @Test func aTransferThatHasEndedIsNotWoken() {
        window.setPaused(true)
        #expect(!isOpen(for: first, "first"))
        #expect(!isOpen(for: second, "second"))
        window.stopWaiting(first)
        window.setPaused(false)
        #expect(wakes.sorted == ["second"])
    }
}
