import FoundationEssentials
import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// What the daemon has answered is on disk: each request that changes something waits for it.
@Suite(
    .directory,
    .daemon,
    .server,
    .enabled("watching system calls takes strace") { await Tracer.isAvailable }
)
struct DurabilityTests {
    private let daemon: DaemonProcess
    private let trace: FilePath

    init() async throws {
        daemon = try .required()
        trace = daemon.directory.appending("trace")
        try daemon.configure(#"{"settlingTime": 0}"#)
        let calls = ["-e", "trace=fdatasync,fsync", "-e", "signal=none", "-y"]
        try await daemon.start(
            by: ["/usr/bin/strace", "-f", "-qq", "-o", trace.string] + calls
        )
    }

    /// How often the log of the journal was synchronized so far.
    private func synchronizations() throws -> Int {
        try text(of: trace).split(separator: "\n").filter {
            $0.contains("journal.sqlite-wal") && $0.hasSuffix("= 0")
        }.count
    }

    private func expectSynchronized(_ change: () async throws -> Void) async throws {
        let before = try synchronizations()
        try await change()
        try await poll("it was answered and is not on disk") { try synchronizations() > before }
    }

    @Test func eachAnswerComesAfterItsChangeIsOnDisk() async throws {
        try await expectSynchronized { try await daemon.makeSession() }
        for token in ["1", "2", "3"] {
            try await expectSynchronized {
                try await daemon.download("http://127.0.0.1:1/", token: token) {
                    $0.isSuspended = true
                }
            }
        }
        try await expectSynchronized {
            var change = TransferChange()
            change.priority = 0.9
            try await daemon.client.change(1, change)
        }
        try await expectSynchronized {
            var change = TransferChange()
            change.state = .cancelled
            try await daemon.client.change(2, change)
        }
        try await expectSynchronized {
            try await daemon.client.acknowledge(Acknowledgement(sequence: 1), in: "s")
        }
        try await expectSynchronized { try await daemon.client.removeSession("s") }
    }
}
