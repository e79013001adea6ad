import StageContainer
import StageModel
import StagePack
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Requests for locks of a container, which wait in the kernel: a process that polls might never find a lock free
/// while another process takes it repeatedly.
@Suite(.directory, .timeLimit(.minutes(5))) struct LockRequestTests {
    private static let timeout = Duration.seconds(200)
    private let sample: SampleContainer
    private let container: Container

    init() throws {
        sample = try SampleContainer()
        container = try Container.make(sample.path)
    }

    /// Waits until a request for the lock on a file is blocked in the kernel.
    private func waitForRequest(of name: String) async throws {
        let status = try #require(try container.root.status(FilePath(name)))
        try await poll("no request waits in the kernel") { try status.hasWaitingLockRequest() }
    }

    @Test func aPackIsRemovedWhenItsLockIsFree() async throws {
        try sample.publish(.aurora, version: 1, ["sky": "blue"])
        let store = PackStore(containers: [sample.path])
        var held = try container.attemptLock(.aurora)
        try #require(held != nil)
        let removal = Task { try await store.remove(.aurora, waitingAtMost: Self.timeout) }
        try await waitForRequest(of: "locks/aurora")
        #expect(try store.stagedPacks() == [.aurora])
        held = nil
        #expect(try await removal.value)
        #expect(try store.stagedPacks() == [])
    }

    @Test func aCancelledRemovalLeavesThePack() async throws {
        try sample.publish(.aurora, version: 1, ["sky": "blue"])
        let store = PackStore(containers: [sample.path])
        let held = try #require(try container.attemptLock(.aurora))
        let removal = Task { try await store.remove(.aurora, waitingAtMost: Self.timeout) }
        try await waitForRequest(of: "locks/aurora")
        removal.cancel()
        await #expect(throws: PackStoreError.container(.busy(.aurora))) {
            try await removal.value
        }
        #expect(try store.stagedPacks() == [.aurora])
        extendLifetime(held)
    }

    /// The holder removes the file, so the request opens the next one.
    @Test func aDownloadContinuesWithTheNextLockFile() async throws {
        let digest = Digest(bytes: [UInt8](repeating: 7, count: Digest.byteCount))
        let name = ContainerLayout.downloadName(of: digest)
        let held = try #require(try container.attemptDownloadLock(name))
        let container = container
        let request = Task {
            try await container.waitForDownloadLock(name, within: Self.timeout)
        }
        try await waitForRequest(of: "downloads/\(name.string).lock")
        held.end()
        let lock = try #require(try await request.value)
        #expect(try container.attemptDownloadLock(name) == nil)
        lock.end()
        #expect(try container.downloads.entries() == [])
    }

    @Test func aChangeOfAHistoryWaitsForTheOneBefore() async throws {
        let application = try ApplicationID("net.example")
        let locks = try Directory.open(sample.path.appending("locks"))
        let held = try FileLock.attempt(
            try locks.file(updating: ".history", permissions: .privateFile),
            mode: .exclusive
        )
        let container = container
        let change = Task {
            try await withBlockingThread { () throws(ContainerError) in
                try container.updateHistory(of: application, waitingSeconds: 200) {
                    $0.spent.other = ByteCount(1)
                }
            }
        }
        try await waitForRequest(of: "locks/.history")
        #expect(try container.reader.history(of: application) == nil)
        _ = consume held
        try await change.value
        #expect(try container.reader.history(of: application)?.spent.other == ByteCount(1))
    }
}
