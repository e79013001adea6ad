import Glibc
import Logging
import StageArchive
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// The unpacking process may die at any time; the caller gets an error, and the next process works.
@Suite(.directory) struct UnpackProcessTests {
    /// An archive that takes a while to unpack: 64 MiB, which compress well.
    private func slowRequest(_ destination: FilePath) throws -> (Kept, UnpackRequest) {
        let root = try TemporaryDirectory.required()
        let content = [UInt8](repeating: 7, count: 64 << 20)
        let bytes = TarBuilder(.init("a", content: content)).bytes
        let archive = try root.file(updating: "archive")
        try archive.write(bytes.span, at: 0)
        let request = UnpackRequest(
            archive: archive.descriptor,
            destination: try root.makeDirectory(destination),
            format: .tar,
            limits: UnpackLimits(entries: 1, bytes: .mebibytes(64))
        )
        return (Kept(archive), request)
    }

    /// An open file that stays open as long as a test needs it.
    private final class Kept: Sendable {
        let file: File
        init(_ file: consuming File) { self.file = file }
    }

    private func unpacker(_ mark: String = "test") throws -> Unpacker {
        Unpacker(
            .process(executable: try Bench.service, arguments: ["unpack-service", "", mark]),
            logger: Logger(label: "test")
        )
    }

    @Test func aProcessThatIsKilledIsAnErrorAndTheNextOneServes() async throws {
        let mark = "\(UInt64.random(in: .min ... .max))"
        let unpacker = try unpacker(mark)
        let root = try TemporaryDirectory.required()
        let (archive, request) = try slowRequest("destination")
        var outcome: ArchiveError?
        // Retries if the process ended before the signal arrived.
        for attempt in 0..<50 where outcome == nil {
            var request = request
            request.destination = try root.makeDirectory(FilePath("destination-\(attempt)"))
            do throws(ArchiveError) {
                _ = try await unpacker.unpack(request) { _ in Self.killProcess(mark) }
            } catch {
                outcome = error
            }
            try root.removeTree(try #require(FilePath.Component("destination-\(attempt)")))
        }
        #expect(outcome == .interrupted(.signalled(Int(SIGKILL))))
        var again = request
        again.destination = try root.makeDirectory("again")
        let report = try await unpacker.unpack(again)
        #expect(report.bytes == .mebibytes(64))
        _ = archive.file.path
    }

    @Test func cancellingEndsTheProcess() async throws {
        for mode in try UnpackerTests.modes() {
            let unpacker = Unpacker(mode, logger: Logger(label: "test"))
            let (archive, request) = try slowRequest(
                FilePath("\(UInt64.random(in: .min ... .max))")
            )
            let result = await withTaskGroup(of: ArchiveError?.self) { group in
                group.addTask {
                    do throws(ArchiveError) {
                        _ = try await unpacker.unpack(request)
                        return nil
                    } catch {
                        return error
                    }
                }
                group.cancelAll()
                return await group.next() ?? nil
            }
            #expect(result == .cancelled)
            _ = archive.file.path
        }
    }

    /// Serves as the unpacking service does, but its decoders close their sockets and stay.
    private static let deafService = """
        #!/usr/bin/python3
        import ctypes, os, socket, struct, time
        service = socket.socket(fileno=3)
        libc = ctypes.CDLL(None)
        while True:
            message, files, _, _ = socket.recv_fds(service, 1 << 16, 4)
            if not message: break
            # CLONE_PARENT: the decoder is a child of the tests.
            child = libc.syscall(56 if os.uname().machine == 'x86_64' else 220, 0x8000 | 17, 0, 0, 0, 0)
            if child == 0:
                service.close()
                channel = socket.socket(fileno=files[0])
                channel.recv(1 << 16)
                channel.close()
                time.sleep(600)
                os._exit(0)
            for file in files: os.close(file)
            service.send(struct.pack('<qq', 0, child))
        """

    @Test func aProcessThatClosesItsSocketAndStaysIsKilled() async throws {
        let program = try TemporaryDirectory.required().path.appending("service")
        try ProgramFile.write(Self.deafService, to: program)
        let unpacker = Unpacker(
            .process(executable: program, arguments: ["unpack-service"]),
            logger: Logger(label: "test")
        )
        let (archive, request) = try slowRequest("destination")
        await #expect(throws: ArchiveError.interrupted(.signalled(Int(SIGKILL)))) {
            try await unpacker.unpack(request)
        }
        _ = archive.file.path
    }

    @Test func anExecutableThatIsNotThereIsAnError() async throws {
        let unpacker = Unpacker(
            .process(executable: "/nowhere/at-all", arguments: ["x"]),
            logger: Logger(label: "test")
        )
        let (archive, request) = try slowRequest("destination")
        let error = FileError("start", path: "/nowhere/at-all", errno: .noSuchFileOrDirectory)
        await #expect(throws: ArchiveError.fileSystem(error)) {
            try await unpacker.unpack(request)
        }
        _ = archive.file.path
    }

    @Test func aNameOfAnyLengthIsAnErrorThatComesBack() async throws {
        var bench = try Bench()
        let name = String(repeating: "\u{1}", count: 200_000)
        var tar = TarBuilder()
        tar.addPax(("path", name))
        tar.add(.init("a"))
        tar.finish()
        guard case .notAllowed(let entry, _)? = try await bench.refusal(tar.bytes, .tar) else {
            Issue.record("the name was not refused")
            return
        }
        #expect(name.hasPrefix(entry.dropLast()))
    }

    @Test func oneServiceServesManyPacks() async throws {
        var bench = try Bench()
        for index in 0..<100 {
            let tar = TarBuilder(.init("a", content: [UInt8(index)]))
            let (_, found) = try await bench.unpack(tar.bytes, .tar)
            #expect(found == Unpacked(["a": .file([UInt8(index)], isExecutable: false)]))
        }
    }

    /// Kills the process that was started with `mark`.
    private static func killProcess(_ mark: String) {
        guard let processes = try? Directory.open("/proc").entries() else { return }
        for process in processes {
            guard let number = pid_t(process.path.string), number != getpid(),
                let file = try? File.open(reading: FilePath("/proc/\(number)/cmdline"))
            else { continue }
            var bytes = [UInt8](repeating: 0, count: 512)
            // The process may have ended meanwhile.
            guard let count = try? file.read(into: &bytes, at: 0) else { continue }
            if String(decoding: bytes[..<count], as: UTF8.self).contains(mark) {
                kill(number, SIGKILL)
            }
        }
    }
}
