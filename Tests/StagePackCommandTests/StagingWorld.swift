import FoundationEssentials
import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// A registered application with one pack of some megabytes, which its server sends slowly.
struct StagingWorld: Sendable {
    /// The kind of the pack.
    enum Kind: CaseIterable, Sendable {
        case archive
        case indexed
    }

    let kind: Kind
    let installed: Installed
    /// The bytes that an installation takes.
    let size: Int
    private let publisher: IndexedPublisher
    private var archives: [SamplePack]

    /// The way in which the server sends a response for the pack.
    enum Sending: Sendable {
        /// Sends at a rate, in bytes per second.
        case slowly(Int = 256 << 10)
        /// Sends the first bytes, and the others when a gate is open.
        case held(Gate)
    }

    private let sending: Sending

    /// Publishes version 1.
    init(_ kind: Kind, sending: Sending = .slowly()) async throws {
        self.kind = kind
        self.sending = sending
        var installed = try await Installed()
        installed.allowDaemon()
        self.installed = installed
        publisher = try IndexedPublisher(installed.world)
        archives = try (1...2).map(Self.archive)
        size = Self.mebibytes << 20
        try await publish(version: 1)
    }

    private static let mebibytes = 8

    private static func archive(version: Int) throws -> SamplePack {
        var pack = try SamplePack.large(.aurora, version: version, mebibytes: mebibytes)
        pack.pack.policy = .onDemand
        return pack
    }

    /// Creates the archive of a version after the second one; the earlier versions must exist.
    mutating func make(version: Int) throws {
        if version > archives.count { archives.append(try Self.archive(version: version)) }
    }

    /// The pack.
    var pack: String { kind == .archive ? "aurora" : "levels" }

    /// Publishes a version.
    func publish(version: Int) async throws {
        switch kind {
        case .archive:
            var world = installed.world
            world.revision = version
            try world.publish([archives[version - 1]]) { answer in
                switch sending {
                case .slowly(let rate): answer.slowed(to: rate)
                case .held(let gate): answer.held(after: 1 << 20, until: gate)
                }
            }
        case .indexed:
            try publisher.write([
                "world": noise(Self.mebibytes << 20, seed: UInt64(version))
            ])
            let index = try await publisher.package(version: version)
            // There are four requests at a time.
            try publisher.publish(index, version: version) { answer in
                switch sending {
                case .slowly(let rate): answer.slowed(to: rate / 4)
                case .held(let gate): answer.held(after: 256 << 10, until: gate)
                }
            }
        }
    }

    /// Makes the server send at full speed from the next request on.
    func speedUp() throws {
        let server = installed.world.server
        for pack in archives { server.answer(pack.path, with: .content(pack.archive)) }
        if kind == .indexed { try publisher.answerForBundles { .content($0) } }
    }

    /// The bytes of the pack that were sent.
    var bytesSent: Int {
        switch kind {
        case .archive:
            archives.reduce(0) { $0 + installed.world.server.counts(for: $1.path).bytes }
        case .indexed: publisher.bytesSent
        }
    }

    /// The number of requests for archives or bundles.
    var contentRequests: Int {
        let folder = kind == .archive ? "/packs/" : "/b/"
        return installed.world.server.requests.count { $0.target.hasPrefix(folder) }
    }

    /// The number of received bytes, from the container: the server counts sent bytes only at the end of each
    /// response.
    var bytesReceived: Int {
        switch kind {
        case .archive: Int(partSize(below: installed.container.appending("downloads")))
        case .indexed: areaSize
        }
    }

    /// The bytes on disk of the pack's file in its staging area.
    private var areaSize: Int {
        // Files that were removed meanwhile have no size.
        guard let staging = try? Directory.open(installed.container.appending("staging")),
            let areas = try? staging.entries()
        else { return 0 }
        return areas.reduce(0) { sum, area in
            let file = FilePath("\(area.name)/content/world")
            return sum + Int(((try? staging.status(file)) ?? nil)?.allocatedSize ?? 0)
        }
    }

    /// Waits until `megabytes` megabytes were received.
    func wait(forMebibytes count: Int) async throws {
        try await poll("\(count) MiB never arrive") { bytesReceived >= count << 20 }
    }

    /// Waits until no more bytes arrive.
    func waitForSilence() async throws {
        try await pollUntilUnchanged(for: .milliseconds(1500), "bytes go on coming") {
            bytesReceived
        }
    }

    /// Waits until a version is staged.
    func wait(forVersion version: Int) async throws {
        try await poll("version \(version) is never staged") {
            try installed.staged() == [pack: version]
        }
    }

    /// Runs the command, by another program if one is named.
    func fetch(
        by wrapper: [String] = [],
        body: @escaping @Sendable (Program.Running) async throws -> Void = { _ in }
    ) async throws -> Program.Ending {
        let arguments = ["fetch", pack, "--app", "net.example.wallpaper", "--quiet"]
        var program = installed.world.program
        let command = program.wrapper.isEmpty ? [try Program.path.string] : program.wrapper
        if !wrapper.isEmpty { program.wrapper = wrapper + command }
        return try await program.run(arguments, body: body)
    }

    /// Runs the command and kills it when `megabytes` megabytes were received; later responses have full speed.
    func fetchKilled(
        afterMebibytes count: Int,
        by wrapper: [String] = [],
        speedingUp: Bool = true
    ) async throws {
        let ending = try await fetch(by: wrapper) { running in
            try await wait(forMebibytes: count)
            if speedingUp { try speedUp() }
            running.send(SIGKILL)
        }
        #expect(ending.status == Program.killed, "\(ending)")
    }

    /// Requests that a worker of the daemon stages the pack; returns the number of the task.
    func ask(_ client: ControlClient) async throws -> Int64 {
        try await client.stage([pack], of: installed)
    }

    /// The numbers of the processes that stage packs for the daemon of this world.
    func workers() throws -> [pid_t] {
        let location = "\(installed.world.directory.path)/"
        return try Directory.open("/proc").entries().compactMap { entry in
            let path = FilePath("/proc/\(entry.name)")
            // A process that has ended meanwhile does not count.
            guard let process = pid_t(entry.path.string),
                let words = try? text(of: path.appending("cmdline")).split(separator: "\0"),
                words.last == "staging-worker",
                let status = try? text(of: path.appending("status")),
                let parent = status.firstMatch(of: #/PPid:\t(\d+)/#)?.output.1,
                let daemon = try? text(of: FilePath("/proc/\(parent)/cmdline")),
                daemon.contains(location)
            else { return nil }
            return process
        }
    }

    /// The names of the pack's generations.
    func generations() throws -> [String] {
        let path = installed.container.pushing("generations").appending(pack)
        return try Directory.open(path).entries().map(\.path.string)
    }

    /// Returns the partial files and staging areas in the container.
    func litter() throws -> [String] {
        try ["downloads", "staging"].flatMap { name in
            try Directory.open(installed.container).directory(FilePath(name))?.entries()
                .map(\.path.string) ?? []
        }
    }
}

extension ControlClient {
    /// Requests that a worker stages packs of an application, and does not stage them itself if the daemon fails;
    /// returns the number of the task.
    func stage(
        _ packs: [String],
        of installed: Installed,
        session name: String = "test",
        _ change: (inout StagingJob) -> Void = { _ in }
    ) async throws -> Int64 {
        let session = "stagepack/\(name)/1"
        var configuration = SessionConfiguration()
        configuration.isTransient = true
        try await makeSession(session, configuration: configuration)
        var job = StagingJob()
        job.application = installed.registration.application.text
        job.packs = packs
        change(&job)
        if geteuid() != 0 {
            job.environment = installed.world.program.environment.filter { name, _ in
                StagingJob.variables.contains(name)
            }
        }
        var request = TransferRequest(token: "1", kind: .staging, url: job.application ?? "")
        request.staging = job
        request.description = packs.joined(separator: " ")
        return try #require(try await createTasks([request], in: session).first)
    }
}
