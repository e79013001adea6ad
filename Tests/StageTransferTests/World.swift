import Glibc
import Logging
import StageDigest
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

@testable import StageTransfer

/// A temporary directory of one test, removed with its contents.
final class TemporaryDirectory: Sendable {
    let directory: Directory

    init() throws {
        let name = "stage-\(getpid())-\(String(UInt64.random(in: 0 ... .max), radix: 36))"
        // A directory in memory, if there is one: these tests do not test the disk.
        let root = (try? Directory.open("/dev/shm"))?.path ?? "/tmp"
        directory = try Directory.make(root.appending(name))
        try directory.markAsUsed()
    }

    deinit {
        // Files that a failed test leaves here do no harm.
        guard let parent = try? Directory.open(directory.path.removingLastComponent()),
            let name = directory.path.lastComponent
        else { return }
        _ = try? parent.removeTree(name)
    }
}

/// Events of a download in a test, recorded from any thread.
final class Events: Sendable {
    private let list = Mutex<[TransferEvent]>([])

    func append(_ event: TransferEvent) { list.withLock { $0.append(event) } }

    var all: [TransferEvent] { list.withLock { $0 } }

    /// The offsets at which bodies were accepted.
    var offsets: [Int64] {
        all.compactMap {
            guard case .accepted(_, _, let offset) = $0 else { return nil }
            return offset.rawValue
        }
    }

    var restarts: [TransferEvent.RestartReason] {
        all.compactMap {
            guard case .restarted(let reason) = $0 else { return nil }
            return reason
        }
    }
}

extension TransferConfiguration {
    /// A configuration with very short delays.
    static var impatient: Self {
        var configuration = Self()
        configuration.retry = RetryPolicy(
            maximumAttempts: 3,
            base: .milliseconds(2),
            cap: .milliseconds(10)
        )
        // Only delays are short: on a busy machine, the engine may notice a connection late.
        configuration.connectTimeout = .seconds(120)
        return configuration
    }

    /// The same configuration with only one attempt.
    static var single: Self {
        var configuration = Self.impatient
        configuration.retry.maximumAttempts = 1
        return configuration
    }
}

extension DownloadRequest {
    /// A request for known content, verified by its digest.
    init(_ mirrors: String..., content: [UInt8], events: Events = Events()) {
        self.init(
            mirrors: mirrors,
            size: ByteCount(content.count),
            verify: { path in
                let found = Digest(of: fileContent(path) ?? [])
                return DigestMismatch(expected: Digest(of: content), found: found)
            },
            report: { events.append($0) }
        )
    }
}

/// The content of the file at a path; `nil` if there is none.
func fileContent(_ path: FilePath) -> [UInt8]? {
    guard let file = try? File.open(reading: path) else { return nil }
    return try? file.readAll(limit: 1 << 28)
}

/// Runs `body` with an engine that has the tests' settings.
func withEngine<Result>(
    _ configuration: TransferConfiguration = .impatient,
    _ body: (TransferEngine) async throws -> Result
) async throws -> Result {
    let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    return try await withTransferEngine(configuration, logger: logger) { engine in
        try await body(engine)
    }
}

/// Runs one download with an engine of its own.
@discardableResult
func download(
    _ request: DownloadRequest,
    to part: PartialFile,
    _ configuration: TransferConfiguration = .impatient
) async throws -> DownloadReceipt {
    try await withEngine(configuration) { try await $0.download(request, to: part) }
}

/// The error of a download that fails.
func failure(
    of request: DownloadRequest,
    to part: PartialFile,
    _ configuration: TransferConfiguration = .impatient
) async -> TransferError? {
    do {
        try await download(request, to: part, configuration)
        return nil
    } catch {
        return error as? TransferError
    }
}
