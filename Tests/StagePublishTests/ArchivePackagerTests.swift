import Glibc
import StageArchive
import StageDigest
import StageModel
import StagePublish
import StageSystem
import StageTesting
import Subprocess
import Synchronization
import SystemPackage
import Testing

@Suite(.directory) struct ArchivePackagerTests {
    static let formats: [ArchiveFormat] = [.tar, .tarGzip, .tarXZ, .tarZstandard]

    /// Reproducible bytes that compress a little.
    private func content(_ count: Int, _ seed: UInt64) -> [UInt8] {
        // Four random bits in each byte, so that a compressor makes the content smaller.
        noise(count, seed: seed, mask: 0x0F0F_0F0F_0F0F_0F0F)
    }

    private static let files = ["b.bin", "d/a", "d/Nordlicht über Tromsø.svg", "tool"]

    /// Creates the same tree, with its files in the given order.
    private func tree(_ name: String, _ order: [String] = files) throws -> SourceTree {
        let tree = try SourceTree(name)
        for file in order {
            let size = file == "b.bin" ? 3_000_000 : file.utf8.count
            let mode: mode_t = file == "tool" ? 0o755 : 0o644
            try tree.file(file, content(size, UInt64(file.utf8.count)), mode: mode)
        }
        let long = "d/" + String(repeating: "long name ", count: 20)
        try tree.file(long, "long")
        try tree.link("d/link", to: "../b.bin")
        try tree.directory("empty")
        return tree
    }

    private func pack(
        _ tree: SourceTree,
        _ format: ArchiveFormat,
        threads: Int = 2,
        to name: String = "out"
    ) async throws -> (PackagedArchive, [UInt8]) {
        let output = try TemporaryDirectory.required().path.appending(name)
        var packager = ArchivePackager(format: format, threads: threads)
        if format != .tar { packager.level = 1 }
        let evaluation = try tree.evaluate(#"{"directory": "."}"#)
        let archive = try await packager.write(evaluation, to: output)
        return (archive, try File.open(reading: output).readAll(limit: 1 << 24))
    }

    @Test func aFileThatAKilledCommandLeftIsRemoved() async throws {
        let directory = try TemporaryDirectory.required()
        try directory.write([1], to: ".out.3mxh1urkd3nsa.tmp", durably: false)
        _ = try await pack(try tree("one"), .tar)
        #expect(try directory.status(".out.3mxh1urkd3nsa.tmp") == nil)
    }

    @Test(arguments: formats) func theSameFilesGiveTheSameBytes(format: ArchiveFormat) async throws
    {
        let (_, first) = try await pack(try tree("one"), format, threads: 1)
        let other = try tree("two", Self.files.reversed())
        try other.set(0o600, of: "d/a")
        try other.set(0o700, of: "tool")
        try other.set(0o2775, of: "empty")
        let file = other.path.appending("d").appending("a").string
        var times = [timeval(tv_sec: 1, tv_usec: 0), timeval(tv_sec: 2, tv_usec: 0)]
        let status = unsafe utimes(file, &times)
        #expect(status == 0)
        let (_, second) = try await pack(other, format, threads: 5)
        #expect(Digest(of: first) == Digest(of: second))
        // The timestamp in a gzip header (RFC 1952, section 2.3).
        if format == .tarGzip { #expect(Array(first[4..<8]) == [0, 0, 0, 0]) }
        // Relevant differences change the archive.
        try other.set(0o755, of: "d/a")
        let (_, third) = try await pack(other, format)
        #expect(Digest(of: third) != Digest(of: second))
    }

    /// Content in which slow compression finds repeats that fast compression misses, though it hardly gets smaller.
    private func sound(_ seed: UInt64) -> [UInt8] {
        var bytes = noise(800_000, seed: seed)
        for offset in stride(from: 400_000, to: bytes.count - 32, by: 4096) {
            bytes.replaceSubrange(
                offset..<(offset + 32),
                with: bytes[(offset - 300_000)...].prefix(32)
            )
        }
        return bytes
    }

    /// Packs files with Zstandard, without a level or with one.
    private func pack(
        _ files: [String: [UInt8]],
        level: Int?,
        threads: Int = 2,
        as name: String
    ) async throws -> [UInt8] {
        let tree = try SourceTree("tree of \(name)")
        for (path, bytes) in files { try tree.file(path, bytes) }
        if files["e"] != nil {
            try tree.directory("d/empty")
            try tree.link("link", to: "a/sound")
        }
        let output = try TemporaryDirectory.required().path.appending(name)
        let packager = ArchivePackager(format: .tarZstandard, level: level, threads: threads)
        _ = try await packager.write(tree.evaluate(#"{"directory": "."}"#), to: output)
        return try File.open(reading: output).readAll(limit: 1 << 24)
    }

    @Test func incompressibleFilesAreCompressedFast() async throws {
        let few = ["a": sound(1)]
        let many = few.merging(["d/c": sound(2)]) { $1 }
        let (fast, slow) = (
            try await pack(many, level: 1, as: "fast"), try await pack(many, level: 19, as: "slow")
        )
        #expect(try await pack(many, level: nil, as: "many") == fast)
        // The slow level gains less than a two-hundredth.
        #expect(slow.count < fast.count && fast.count < slow.count * 201 / 200)
        #expect(try await pack(few, level: nil, as: "few") == pack(few, level: 19, as: "slow few"))
    }

    @Test func incompressibleFilesComeLastInAFrameOfTheirOwn() async throws {
        let text = content(300_000, 1)
        let sounds = ["a/sound": sound(1), "c": sound(2)]
        let files = sounds.merging(["a/text": text, "b": content(90_000, 2), "e": []]) { $1 }
        let bytes = try await pack(files, level: nil, as: "mixed.tar.zst")
        #expect(try await pack(files, level: nil, threads: 5, as: "other") == bytes)
        let directory = try TemporaryDirectory.required()
        let result = try await shell(
            """
            cd "$1"
            zstd -lv mixed.tar.zst 2>&1 | grep -iE 'frames|window'
            zstd -dc mixed.tar.zst | tar -t
            mkdir unpacked
            bsdtar -xf mixed.tar.zst -C unpacked
            diff -r unpacked "tree of mixed.tar.zst"
            """,
            arguments: [directory.path.string]
        )
        #expect(
            result.standardOutput == """
                # Zstandard Frames: 2
                Window Size: 2.00 MiB (2097152 B)
                a/
                a/text
                b
                d/
                d/empty/
                e
                link
                a/sound
                c

                """
        )
        #expect(result.standardError == "")
        let inventory = try ArchiveInventory(
            of: directory.path.appending("mixed.tar.zst"),
            format: .tarZstandard,
            decoding: .process(executable: try service, arguments: ["unpack-service"])
        )
        #expect(inventory.fileCount == 6)
        #expect(inventory.installedSize == ByteCount(1_990_000))
        // The text is as small as in an archive of its own; the headers of two entries are not compressed.
        let alone = try await pack(files.filter { sounds[$0.key] == nil }, level: 19, as: "text")
        #expect(1_600_000..<1_602_000 ~= bytes.count - alone.count)
    }

    @Test(arguments: formats) func theFactsAreThoseOfTheFile(format: ArchiveFormat) async throws {
        let (archive, bytes) = try await pack(try tree("one"), format)
        let sizes = Self.files.map { $0 == "b.bin" ? 3_000_000 : $0.utf8.count }
        var expected = Pack(
            id: try PackID("aurora"),
            version: 7,
            policy: .onDemand,
            archive: PackArchive(
                url: "x",
                format: format,
                size: ByteCount(bytes.count),
                digest: Digest(of: bytes)
            ),
            installedSize: ByteCount(sizes.reduce(4, +)),
            fileCount: 6
        )
        expected.directoryCount = 2
        #expect(archive.pack(version: 7, url: "x") == expected)
        let output = try TemporaryDirectory.required().path.appending("out")
        let inventory = try ArchiveInventory(
            of: output,
            format: format,
            decoding: .process(executable: try service, arguments: ["unpack-service"])
        )
        #expect(inventory.fileCount == archive.fileCount)
        #expect(inventory.directoryCount == archive.directoryCount)
        #expect(inventory.installedSize == archive.installedSize)
    }

    /// The executable that decodes archives, built beside the tests.
    private var service: FilePath {
        get throws {
            let tests = try #require(try Directory.open("/proc/self").link("exe"))
            return FilePath(tests).removingLastComponent().appending("unpack-service")
        }
    }

    /// Runs a script, which ends at the first command that fails.
    private func shell(
        _ script: String,
        arguments: [String]
    ) async throws -> ExecutionResult<Void, StringOutput<UTF8>, StringOutput<UTF8>> {
        try await Subprocess.run(
            .name("sh"),
            arguments: Arguments(["-ec", script, "sh"] + arguments),
            output: .string(limit: 1 << 16),
            error: .string(limit: 1 << 16)
        )
    }

    @Test(arguments: formats, ["bsdtar", "tar"])
    func otherProgramsUnpackTheSameTree(format: ArchiveFormat, program: String) async throws {
        let tree = try tree("one")
        _ = try await pack(tree, format, to: "out.\(format.rawValue)")
        let directory = try TemporaryDirectory.required()
        let target = try directory.makeDirectory("unpacked")
        let result = try await shell(
            """
            "$1" -xf "$2" -C "$3"
            diff -r --no-dereference "$4" "$3"
            stat -c '%a %Y %u' "$3/tool" "$3/d/a" "$3/empty"
            """,
            arguments: [
                program, directory.path.appending("out.\(format.rawValue)").string,
                target.path.string, tree.path.string,
            ]
        )
        let user = getuid()
        #expect(result.standardOutput == "755 0 \(user)\n644 0 \(user)\n755 0 \(user)\n")
        #expect(result.standardError == "")
    }

    /// The programs that unpack a format, as words of a shell; Python's module decodes no Zstandard.
    private static let unpackers: [(ArchiveFormat, String)] =
        formats.map { ($0, "tar -xf") }
        + formats.filter { $0 != .tarZstandard }.map { ($0, "python3 -m tarfile -e") }

    @Test(arguments: unpackers)
    func namesAndTargetsKeepTheirBytes(format: ArchiveFormat, unpacker: String) async throws {
        let tree = try SourceTree("one")
        for name in ["caf\u{E9}", "cafe\u{301}"] {
            try tree.file(name, name.debugDescription)
            try tree.file("d-\(name)/a", name.debugDescription)
            try tree.link("to-\(name.utf8.count)", to: name)
        }
        try tree.file("\u{212B}", "singleton")
        _ = try await pack(tree, format, to: "out.\(format.rawValue)")
        let directory = try TemporaryDirectory.required()
        let target = try directory.makeDirectory("unpacked")
        let result = try await shell(
            """
            export LC_ALL=C.UTF-8
            case $1 in tar*) $1 "$2" -C "$3";; *) $1 "$2" "$3";; esac
            LC_ALL=C diff -r --no-dereference "$4" "$3"
            """,
            arguments: [
                unpacker, directory.path.appending("out.\(format.rawValue)").string,
                target.path.string, tree.path.string,
            ]
        )
        #expect(result.standardOutput == "")
        #expect(result.standardError == "")
        #expect(result.terminationStatus == .exited(0))
    }

    @Test func aFileThatChangesIsAnErrorAndNothingIsLeft() async throws {
        let tree = try tree("one")
        let directory = try TemporaryDirectory.required()
        let evaluation = try tree.evaluate(#"{"directory": "."}"#)
        let packager = ArchivePackager(format: .tar, threads: 1)
        try directory.write(Array("old".utf8), to: "out", durably: false)
        for content in ["longer than before", ""] {
            try tree.file("tool", content, mode: 0o755)
            await #expect(throws: PackagingError.changed(source: "tool")) {
                try await packager.write(evaluation, to: directory.path.appending("out"))
            }
        }
        #expect(try directory.entries().map(\.path.string).sorted() == ["one", "out"])
        #expect(try text(of: directory.path.appending("out")) == "old")
    }

    /// A program writes into a file in place, which keeps its size.
    @Test(arguments: formats)
    func aFileThatIsWrittenWhileItIsReadIsAnError(format: ArchiveFormat) async throws {
        let tree = try tree("one")
        let path = tree.path.appending("b.bin")
        // The time of a write is that of the clock's last tick, which may be the time of the file.
        try File.open(reading: path).setModified(1_000_000_000)
        var packager = ArchivePackager(format: format, threads: 1)
        if format != .tar { packager.level = 1 }
        packager.progress = { progress in
            guard progress.read > .zero, let file = try? FileDescriptor.open(path, .writeOnly)
            else { return }
            _ = try? file.writeAll(toAbsoluteOffset: 0, [UInt8(1)])
            try? file.close()
        }
        let (configured, directory) = (packager, try TemporaryDirectory.required())
        let evaluation = try tree.evaluate(#"{"directory": "."}"#)
        await #expect(throws: PackagingError.changed(source: "b.bin")) {
            try await configured.write(evaluation, to: directory.path.appending("out"))
        }
        #expect(try directory.entries().map(\.path.string) == ["one"])
    }

    @Test func aFileThatChangesBeforeTheTrialIsAnError() async throws {
        let tree = try SourceTree("one")
        try tree.file("a", sound(1))
        try tree.file("b", sound(2))
        let evaluation = try tree.evaluate(#"{"directory": "."}"#)
        let hasWritten = Mutex(false)
        var packager = ArchivePackager(format: .tarZstandard, threads: 2)
        packager.progress = { progress in
            if !progress.isTrial { hasWritten.withLock { $0 = true } }
        }
        let (configured, directory) = (packager, try TemporaryDirectory.required())
        for content in [[], Array(sound(2).dropLast()), sound(2) + [1]] {
            #expect(!hasWritten.withLock { $0 })
            try tree.file("b", content)
            await #expect(throws: PackagingError.changed(source: "b")) {
                try await configured.write(evaluation, to: directory.path.appending("out"))
            }
        }
        #expect(try directory.entries().map(\.path.string) == ["one"])
    }

    @Test func theTrialReportsItsProgress() async throws {
        let tree = try SourceTree("one")
        try tree.file("large", noise(20 << 20))
        try tree.file("small", "small")
        let (stream, continuation) = AsyncStream.makeStream(of: PackagingProgress.self)
        var packager = ArchivePackager(format: .tarZstandard, threads: 1)
        packager.progress = { continuation.yield($0) }
        let output = try TemporaryDirectory.required().path.appending("out")
        _ = try await packager.write(tree.evaluate(#"{"directory": "."}"#), to: output)
        continuation.finish()
        var trial: [ByteCount] = []
        for await progress in stream where progress.isTrial { trial.append(progress.read) }
        #expect(trial == [.mebibytes(8), .mebibytes(16), ByteCount(20 << 20 + 5)])
    }

    @Test(arguments: [true, false])
    func aCancelledArchiveLeavesNothing(duringTrial: Bool) async throws {
        let tree = try tree("one")
        try tree.file("noise", noise(9 << 20))
        let directory = try TemporaryDirectory.required()
        let evaluation = try tree.evaluate(#"{"directory": "."}"#)
        let (stream, continuation) = AsyncStream.makeStream(of: Void.self)
        var packager = ArchivePackager(format: .tarZstandard, threads: 1)
        packager.progress = { if $0.isTrial == duringTrial { continuation.yield() } }
        let configured = packager
        let ending = await withTaskGroup(of: PackagingError?.self) { group in
            group.addTask {
                do throws(PackagingError) {
                    for _ in 0..<1000 {
                        let output = directory.path.appending("out")
                        _ = try await configured.write(evaluation, to: output)
                    }
                    return nil
                } catch {
                    return error
                }
            }
            for await _ in stream { break }
            group.cancelAll()
            return await group.next() ?? nil
        }
        #expect(ending == .cancelled)
        let names = try directory.entries().map(\.path.string)
        #expect(names.allSatisfy { !$0.hasSuffix(".tmp") })
    }

    @Test func anOutputThatCannotBeIsAnErrorOfTheFileSystem() async throws {
        let tree = try tree("one")
        let evaluation = try tree.evaluate(#"{"directory": "."}"#)
        let packager = ArchivePackager(format: .tar, threads: 1)
        await #expect(
            throws: PackagingError.file(FileError("create", path: tree.path, errno: .isDirectory))
        ) {
            try await packager.write(evaluation, to: tree.path)
        }
        let missing = tree.path.appending("no").appending("where")
        await #expect(
            throws: PackagingError.file(
                FileError(
                    "open",
                    path: missing.removingLastComponent(),
                    errno: .noSuchFileOrDirectory
                )
            )
        ) { try await packager.write(evaluation, to: missing) }
    }

    /// As `/dev/null`, which a rename would replace.
    @Test(arguments: [false, true])
    func aFIFOIsNotReplaced(isBehindLink: Bool) async throws {
        let directory = try TemporaryDirectory.required()
        let fifo = directory.path.appending("fifo")
        let status = unsafe mkfifo(fifo.string, 0o600)
        try #require(status == 0)
        try directory.createLink("out", to: "fifo")
        let output = isBehindLink ? directory.path.appending("out") : fifo
        let evaluation = try tree("one").evaluate(#"{"directory": "."}"#)
        let packager = ArchivePackager(format: .tar, threads: 1)
        let error = await #expect(throws: PackagingError.self) {
            try await packager.write(evaluation, to: output)
        }
        guard case .file(let fault)? = error else {
            Issue.record("\(String(describing: error))")
            return
        }
        #expect(fault.path == output && fault.isNotRegularFile)
        #expect(try directory.status("fifo")?.kind == .other)
        #expect(try directory.status("out")?.kind == .link)
        #expect(try directory.entries().map(\.path.string).sorted() == ["fifo", "one", "out"])
    }

    @Test func anArchiveThatIsReplacedKeepsItsPermissions() async throws {
        let directory = try TemporaryDirectory.required()
        let mode = FilePermissions(rawValue: 0o640)
        try directory.write([1], to: "out", durably: false, exactly: mode)
        _ = try await pack(try tree("one"), .tar)
        #expect(try directory.status("out")?.mode == 0o640)
    }
}
