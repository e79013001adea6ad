import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Stagings by the daemon on a file system that is full for a while.
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

        /// Fills the remaining space.
        func fill() throws {
            let file = try Directory.open(path).file(creating: "filler")
            let block = [UInt8](repeating: 7, count: 64 << 10)
            do {
                for offset in 0... { try file.write(block.span, at: Int64(offset * block.count)) }
            } catch {
                #expect(error.errno == .noSpace)
            }
        }

        /// Frees the space again.
        func empty() throws { try Directory.open(path).remove("filler") }
    }

    @Test(arguments: StagingWorld.Kind.allCases)
    func aStagingThatFillsTheDiskWaitsAndResumesByItself(_ kind: StagingWorld.Kind) async throws {
        let world = try await StagingWorld(kind)
        try await withDisk(of: world.installed, mebibytes: 48) { disk in
            try await stage(world, on: disk)
        }
    }

    /// Runs `body` with a small file system for the containers of a machine.
    private func withDisk(
        of installed: Installed,
        mebibytes: Int,
        _ body: (SmallDisk) async throws -> Void
    ) async throws {
        let directory = installed.world.directory.path
        let disk = try await SmallDisk(
            at: directory.appending("var-lib"),
            mebibytes: mebibytes,
            log: directory.appending("mount.log")
        )
        do {
            try await body(disk)
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
                try await client.task(id).pendingReasons.map(\.kind) == [.disk]
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
        // An indexed pack may have received 8 MiB that were not written yet (ReceiveWindow).
        let lost = (world.kind == .indexed ? 8 << 20 : 0) + (3 << 20)
        #expect(world.bytesSent <= world.size + lost, "\(world.bytesSent)")
        let litter = try world.litter()
        #expect(litter == [])
    }

    /// During the pause, another program fills the disk.
    @Test func aResumedCommandPlansForTheSpaceThatIsFreeThen() async throws {
        let world = try await StagingWorld(.archive)
        try await withDisk(of: world.installed, mebibytes: 48) { disk in
            try await withDaemon(world) { client in
                let ending = try await world.fetch { _ in
                    try await world.wait(forMebibytes: 1)
                    let id = try #require(try await client.tasks().first?.id)
                    #expect(try await world.installed.run("pause", "\(id)").status == 0)
                    try await world.waitForSilence()
                    try disk.fill()
                    #expect(try await world.installed.run("resume", "\(id)").status == 0)
                }
                #expect(ending.status == 40, "\(ending)")
                #expect(ending.error.contains("pack 'aurora': not enough space: "), "\(ending)")
                try await waitForDisk(client)
                try disk.empty()
                try world.speedUp()
                try await world.wait(forVersion: 1)
            }
        }
    }

    /// A process has the evicted pack open, so its eviction frees no space for the other pack.
    @Test func aPackThatDoesNotFitAfterEvictionsHasFailedForCommandAndDaemon() async throws {
        var installed = try await Installed()
        var (old, new) = (
            try SamplePack.large(try PackID("oceans"), version: 1, mebibytes: 8),
            try SamplePack.large(.aurora, version: 2, mebibytes: 8)
        )
        (old.pack.policy, new.pack.policy) = (.onDemand, .onDemand)
        try installed.world.publish(old, new)
        let application = installed.registration.application.text
        try await withDisk(of: installed, mebibytes: 36) { _ in
            let first = try await installed.run("fetch", "oceans", "--app", application, "--quiet")
            #expect(first.status == 0, "\(first)")
            let images = installed.container.appending("packs/oceans/images")
            let names: [FilePath.Component] = ["0.raw", "1.raw"]
            let files = try names.map { name in
                try FileDescriptor.open(images.appending(name), .readOnly).rawValue
            }
            try await withDaemon(&installed) { installed, client in
                let words = ["fetch", "aurora", "--app", application, "--quiet"]
                let ending = try await installed.world.program.run(words)
                #expect(ending.status == 40, "\(ending)")
                #expect(ending.error.contains("pack 'aurora': not enough space: "), "\(ending)")
                #expect(try installed.staged() == [:])
                try await waitForDisk(client)
                for file in files { try FileDescriptor(rawValue: file).close() }
                try await poll("it is never staged") { try installed.staged() == ["aurora": 2] }
            }
        }
    }

    /// Waits until the only transfer of the daemon waits for the disk.
    private func waitForDisk(_ client: ControlClient) async throws {
        try await poll("it does not wait for the disk") {
            try await client.tasks().map { $0.pendingReasons.map(\.kind) } == [[.disk]]
        }
    }
}
