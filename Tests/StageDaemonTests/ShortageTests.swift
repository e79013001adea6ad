import Glibc
import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// What the daemon does where the system gives it too little: it says so and ends, or it serves; it never traps.
@Suite(.serialized, .directory, .daemon)
struct DaemonShortageTests {
    private let daemon: DaemonProcess

    init() throws { daemon = try .required() }

    /// Starts the daemon with the limit, and returns whether it began to serve; if not, it has said why.
    private func serves(_ limit: String) async throws -> Bool {
        try daemon.configure(#"{"retryBase": 0.05, "settlingTime": 0}"#)
        try daemon.launch(by: ["/usr/bin/prlimit", limit])
        try await poll("the daemon neither begins nor ends") {
            let said = FileStatus.exists(daemon.log) ? try daemon.said() : ""
            return daemon.status != nil || said.contains("Ready")
        }
        guard let status = daemon.status else { return true }
        let said = try daemon.said()
        // The loader of programs has no status of this program's.
        if status == 127, said.contains("shared libraries") { return false }
        #expect(status == 71, "\(said)")
        #expect(said.hasPrefix("stagepackd: error: the system "), "\(said)")
        #expect(said.split(separator: "\n").count == 1)
        return false
    }

    @Test(arguments: [3, 4, 5, 6, 8, 12, 16, 20] + Array(24...44) + [64, 98, 99])
    func withFewDescriptorsItDoesNotBegin(_ count: Int) async throws {
        #expect(try await !serves("--nofile=\(count):\(count)"))
    }

    @Test(arguments: [200, 240, 280, 320]) func withLittleAddressSpaceItDoesNotBeginOrServes(
        _ mebibytes: Int
    ) async throws {
        if try await serves("--as=\(mebibytes << 20)") {
            try await daemon.makeSession()
            #expect(try await daemon.kill(SIGTERM) == 0)
        }
    }
}
