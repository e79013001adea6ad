import Glibc
import Logging
import StageArchive
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// The process that decodes an archive can do nothing else, even when exploited.
@Suite(.directory) struct DecoderConfinementTests {
    /// The rights of a thread, by the names of proc(5).
    private static let rightless: [String: String] = [
        "CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
        "CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
    ]

    private func request(_ destination: Directory, _ archive: borrowing File) -> UnpackRequest {
        UnpackRequest(
            archive: archive.descriptor,
            destination: destination,
            format: .tar,
            limits: UnpackLimits(entries: 1, bytes: .mebibytes(64))
        )
    }

    /// Starts a process of the tests, with a socket that closes when it ends.
    private func start(_ work: String) throws -> (ChildProcess, MessageSocket) {
        let (ours, theirs) = try MessageSocket.pair()
        let child = try ChildProcess(
            executable: try Bench.service,
            arguments: ["unpack-service", work],
            channel: theirs
        )
        return (child, ours)
    }

    /// An archive of 64 MiB.
    private func largeArchive() throws -> File {
        let content = [UInt8](repeating: 7, count: 64 << 20)
        let archive = try TemporaryDirectory.required().file(creating: "large")
        try archive.write(TarBuilder(.init("a", content: content)).bytes.span, at: 0)
        return archive
    }

    @Test func everyThreadOfAStoppedDecoderHasNoRights() async throws {
        let mark = "\(UInt64.random(in: .min ... .max))"
        let unpacker = Unpacker(
            .process(executable: try Bench.service, arguments: ["unpack-service", "", mark]),
            logger: Logger(label: "test")
        )
        let archive = try largeArchive()
        let found = Mutex<[Observation]>([])
        // Retries if the decoder ended before it was stopped, or has not started its threads yet.
        for attempt in 0..<50 where found.withLock({ $0.isEmpty }) {
            let destination = try TemporaryDirectory.required().makeDirectory(
                FilePath("to-\(attempt)")
            )
            _ = try await unpacker.unpack(request(destination, archive)) { _ in
                let observation = Observation(ofDecoderMarked: mark)
                guard let observation, observation.threads.count > 1 else { return }
                found.withLock { $0.append(observation) }
            }
        }
        let observation = try #require(found.withLock { $0.first })
        for (name, thread) in observation.threads {
            for (right, value) in Self.rightless {
                #expect(thread[right] == value, "\(right) of the thread '\(name)'")
            }
            if geteuid() == 0 { #expect(thread["CapBnd"] == "0000000000000000") }
        }
        #expect(Set(observation.files.values).isDisjoint(with: ["/dev/tty"]))
        #expect(observation.files.count { $0.value.hasPrefix("socket:") } == 1)
        // The soft and hard limits, as reported by the kernel.
        let (space, size) = (UInt64(4) << 30, UInt64(64) << 20)
        #expect(observation.limits["Max address space"] == "\(space) \(space)")
        #expect(observation.limits["Max open files"] == "256 256")
        #expect(observation.limits["Max file size"] == "\(size) \(size)")
        #expect(observation.limits["Max core file size"] == "0 0")
        let time = try #require(observation.limits["Max cpu time"]).split(separator: " ")
        // The limit is the permitted time plus the processor time that the service had used itself.
        #expect(time[0] == time[1])
        #expect((136...140).contains(try #require(Int(time[0]))))
    }

    @Test(.enabled("a kernel with Landlock and seccomp", { hasAll }))
    func aDecoderThatWasTakenOverIsRefusedEverything() throws {
        let directory = try TemporaryDirectory.required().makeDirectory("decoder")
        let (child, ours) = try start("attempts")
        try ours.send([0], files: [directory.descriptor])
        var lines: [String] = []
        for _ in 0..<3 {
            let message = try #require(try ours.receive())
            lines += String(decoding: message.bytes, as: UTF8.self).split(separator: "\n")
                .map(String.init)
        }
        #expect(lines.count > 120)
        for line in lines {
            #expect(line.hasSuffix(": \(Self.expected(line))"), "\(line)")
        }
        #expect(child.waitForEnd() == .exited(0))
        #expect(try directory.entries().map(\.path.string) == ["own"])
    }

    /// Returns the expected error of an attempt.
    private static func expected(_ line: String) -> CInt {
        // For these, Landlock removes the right, and the filter does not refuse the call.
        if line.contains(": open, to ") || line.contains(": open, memory") { return EACCES }
        // The C library then retries with fewer flags.
        return line.contains(": clone3") ? ENOSYS : EPERM
    }

    @Test(
        .root("only root and capabilities ask for whole confinement"),
        arguments: [
            ("without-landlock", ArchiveError.Missing.landlock), ("without-seccomp", .callFilter),
        ]
    )
    func rootDecodesNothingThatTheKernelCannotConfine(
        kernel: String,
        missing: ArchiveError.Missing
    ) async throws {
        var bench = try Bench(
            .process(executable: try Bench.service, arguments: ["unpack-service", kernel])
        )
        let tar = TarBuilder(.init("a", content: [1])).bytes
        #expect(try await bench.refusal(tar, .tar) == .notConfined(missing))
        let archive = try bench.root.file(creating: "archive")
        try archive.write(tar.span, at: 0)
        #expect(throws: ArchiveError.notConfined(missing)) {
            try ArchiveInventory(
                of: bench.root.path.appending("archive"),
                format: .tar,
                decoding: .process(
                    executable: try Bench.service,
                    arguments: ["unpack-service", kernel]
                )
            )
        }
    }

    @Test(.root("only root and capabilities ask for a process"))
    func rootDecodesNothingOnAThreadOfItsOwn() async throws {
        var bench = try Bench(.thread)
        let tar = TarBuilder(.init("a", content: [1])).bytes
        #expect(try await bench.refusal(tar, .tar) == .notConfined(.ownProcess))
        let archive = try bench.root.file(creating: "archive")
        try archive.write(tar.span, at: 0)
        #expect(throws: ArchiveError.notConfined(.ownProcess)) {
            try ArchiveInventory(
                of: bench.root.path.appending("archive"),
                format: .tar,
                decoding: .thread
            )
        }
    }

    @Test(.severalUsers)
    func aConfinedThreadOfAUserCallsNothingBack() throws {
        let root = try TemporaryDirectory.required()
        let destination = try root.makeDirectory("destination")
        #expect(fchmod(destination.descriptor.rawValue, 0o777) == 0)
        let archive = try largeArchive()
        let (child, ours) = try start("user-thread")
        try ours.send([0], files: [archive.descriptor, destination.descriptor])
        let answer = try #require(try ours.receive()).bytes
        #expect(String(decoding: answer, as: UTF8.self) == "confined: true, callbacks: free")
        #expect(child.waitForEnd() == .exited(0))
        #expect(try destination.status("a")?.size == 64 << 20)
    }

    @Test func aServiceWithOtherThreadsServesNothing() async throws {
        var bench = try Bench(
            .process(
                executable: try Bench.service,
                arguments: ["unpack-service", "with-another-thread"]
            )
        )
        let error = try await bench.refusal(TarBuilder(.init("a")).bytes, .tar)
        #expect(
            error == .fileSystem(FileError("start", path: try Bench.service, errno: .brokenPipe))
        )
    }

    @Test func anArchiveIsCountedByAProcessOfItsOwn() throws {
        let root = try TemporaryDirectory.required()
        let archive = try root.file(creating: "archive")
        let bytes = SampleTree.tar
        try archive.write(bytes.span, at: 0)
        let mode = Unpacker.Mode.process(
            executable: try Bench.service,
            arguments: ["unpack-service"]
        )
        let path = root.path.appending("archive")
        let inventory = try ArchiveInventory(of: path, format: .tar, decoding: mode)
        #expect(inventory.fileCount == SampleTree.files + SampleTree.links)
        #expect(throws: ArchiveError.self) {
            try ArchiveInventory(of: path, format: .tarGzip, decoding: mode)
        }
        // Contradicting headers are detected as when unpacking.
        var entry = ZipBuilder.Entry("a", content: [1])
        entry.localName = [0x62]
        let zip = try root.file(creating: "zip")
        let twofold = ZipBuilder(entry).bytes
        try zip.write(twofold.span, at: 0)
        #expect(throws: ArchiveError.self) {
            try ArchiveInventory(of: root.path.appending("zip"), format: .zip, decoding: mode)
        }
    }

    private static var hasAll: Bool {
        Confinement.supportedVersion > 0 && Confinement.supportsFilter
    }
}

/// The state in proc(5) of a decoder that was stopped in the middle of its archive.
private struct Observation {
    var threads: [String: [String: String]] = [:]
    var files: [String: String] = [:]
    /// The soft and hard resource limits, by the names of proc(5).
    var limits: [String: String] = [:]

    /// Stops the decoder that was started with `mark`, and reads its state; `nil` if it has ended.
    init?(ofDecoderMarked mark: String) {
        guard let process = Self.processes(marked: mark).first(where: Self.hasArchive),
            kill(process, SIGSTOP) == 0
        else { return nil }
        defer { kill(process, SIGCONT) }
        let tasks = FilePath("/proc/\(process)/task")
        for task in (try? Directory.open(tasks).entries()) ?? [] {
            let path = tasks.appending(task.name).appending("status")
            guard let bytes = try? File.open(reading: path).readAll(limit: 1 << 16) else {
                continue
            }
            var fields: [String: String] = [:]
            for line in String(decoding: bytes, as: UTF8.self).split(separator: "\n") {
                let parts = line.split(separator: ":", maxSplits: 1)
                guard parts.count == 2 else { continue }
                fields[String(parts[0])] = parts[1].drop { $0 == "\t" }.description
            }
            threads["\(fields["Name"] ?? "") \(task.name)"] = fields
        }
        files = Self.files(of: process)
        limits = Self.limits(of: process)
        if threads.isEmpty || files.isEmpty { return nil }
    }

    private static func limits(of process: pid_t) -> [String: String] {
        // The process may have ended meanwhile.
        let file = try? File.open(reading: FilePath("/proc/\(process)/limits"))
        guard let bytes = try? file?.readAll(limit: 1 << 16) else { return [:] }
        var limits: [String: String] = [:]
        for line in String(decoding: bytes, as: UTF8.self).split(separator: "\n") {
            // The columns have 26, 21 and 21 characters.
            let (name, values) = (line.prefix(26), line.dropFirst(26).prefix(42))
            let words = name.split(separator: " ").joined(separator: " ")
            limits[words] = values.split(separator: " ").joined(separator: " ")
        }
        return limits
    }

    /// Returns whether a process has an archive open; the service has not.
    private static func hasArchive(_ process: pid_t) -> Bool {
        files(of: process).values.contains { $0.hasSuffix("/large") }
    }

    private static func files(of process: pid_t) -> [String: String] {
        // The process may have ended meanwhile.
        guard let directory = try? Directory.open(FilePath("/proc/\(process)/fd")),
            let entries = try? directory.entries()
        else { return [:] }
        var files: [String: String] = [:]
        for entry in entries {
            if let target = try? directory.link(entry.name) { files[entry.path.string] = target }
        }
        return files
    }

    private static func processes(marked mark: String) -> [pid_t] {
        guard let processes = try? Directory.open("/proc").entries() else { return [] }
        return processes.compactMap { process in
            guard let number = pid_t(process.path.string), number != getpid(),
                let file = try? File.open(reading: FilePath("/proc/\(number)/cmdline"))
            else { return nil }
            var bytes = [UInt8](repeating: 0, count: 512)
            // The process may have ended meanwhile.
            guard let count = try? file.read(into: &bytes, at: 0) else { return nil }
            return String(decoding: bytes[..<count], as: UTF8.self).contains(mark) ? number : nil
        }
    }
}
