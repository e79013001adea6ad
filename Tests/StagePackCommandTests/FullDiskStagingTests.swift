import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Stagings of the daemon's on a file system that is full for a while.
@Suite(.waiting, .server, .directory, .mountedFileSystems, .timeLimit(.minutes(10)))
struct FullDiskStagingTests {
    /// A small file system below the directory of the test.
    private struct SmallDisk {
        let path: FilePath
        private let log: FilePath

        init(at path: FilePath, mebibytes: Int, log: FilePath) async throws {
            self.path = path
            self.log = log
            let options = "size=\(mebibytes)m"
            try await run("/bin/mount", "-t", "tmpfs", "-o", options, "none", path.string)
        }

        func unmount() async throws { try await run("/bin/umount", "-l", path.string) }

        private func run(_ command: String...) async throws {
            let process = try StartedProcess(command, log: log)
            try await poll("it does not end") { process.status != nil }
            let said = try text(of: log)
            try #require(process.status == 0, "\(said)")
        }

        /// Takes all that is free.
        func fill() throws {
            let file = try Directory.open(path).file(creating: "filler")
            let block = [UInt8](repeating: 7, count: 64 << 10)
            do {
                for offset in 0... { try file.write(block.span, at: Int64(offset * block.count)) }
            } catch {
                #expect(error.errno == .noSpace)
            }
        }

        /// Gives it back.
        func empty() throws { try Directory.open(path).remove("filler") }
    }

    @Test(arguments: StagingWorld.Kind.allCases)
    func whatFillsTheDiskWaitsAndGoesOnByItself(_ kind: StagingWorld.Kind) async throws {
        let world = try await StagingWorld(kind)
        let directory = world.installed.world.directory.path
        let disk = try await SmallDisk(
            at: directory.appending("var-lib"),
            mebibytes: 48,
            log: directory.appending("mount.log")
        )
        do {
            try await stage(world, on: disk)
        } catch {
            try await disk.unmount()
            throw error
        }
        try await disk.unmount()
    }

    private func stage(_ world: StagingWorld, on disk: SmallDisk) async throws {
        try await withDaemon(world) { client in
            let id = try await world.ask(client)
            try await world.wait(forMebibytes: 1)
            try disk.fill()
            try await poll("it does not wait for the disk") {
                try await client.task(id).holds.map(\.kind) == [.disk]
            }
            #expect(try world.installed.staged() == [:])
            for command in ["tasks", "why"] {
                let ending = try await world.installed.run(command)
                #expect(ending.output.contains("waits: the disk is full, until "), "\(ending)")
            }
            try disk.empty()
            try world.speedUp()
            // No command requests it again.
            try await world.wait(forVersion: 1)
            try await poll("the session stays") { try await client.sessions().isEmpty }
        }
        // Of an index 8 MiB may have come that were not written yet (ReceiveWindow).
        let lost = (world.kind == .indexed ? 8 << 20 : 0) + (3 << 20)
        #expect(world.bytesSent <= world.size + lost, "\(world.bytesSent)")
        let litter = try world.litter()
        #expect(litter == [])
    }
}
