import Logging
import StageArchive
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// Valid archives are unpacked completely, in both modes.
@Suite(.directory) struct UnpackerTests {
    /// Both modes of unpacking; root supports only one of them.
    static func modes() throws -> [Unpacker.Mode] {
        let service = Unpacker.Mode.process(
            executable: try Bench.service,
            arguments: ["unpack-service"]
        )
        return Confinement.isPrivileged ? [service] : [.thread, service]
    }

    @Test(arguments: ArchiveFormat.tars, try modes())
    func aTreeComesOutAsItWentIn(format: ArchiveFormat, mode: Unpacker.Mode) async throws {
        var bench = try Bench(mode)
        let (report, found) = try await bench.unpack(format.compress(SampleTree.tar), format)
        #expect(found == Unpacked(SampleTree.things))
        let bytes = SampleTree.things.values.reduce(0) { sum, thing in
            if case .file(let content, _) = thing { sum + content.count } else { sum }
        }
        #expect(
            report
                == UnpackReport(
                    files: SampleTree.files,
                    directories: SampleTree.directories,
                    links: SampleTree.links,
                    bytes: ByteCount(bytes),
                    confinement: report.confinement
                )
        )
    }

    @Test(arguments: try modes())
    func aSingleFileComesOutAsItIs(mode: Unpacker.Mode) async throws {
        var bench = try Bench(mode)
        let (report, found) = try await bench.unpack([1, 2], .file, fileName: "photo.png")
        #expect(report.files == 1 && report.bytes == ByteCount(2))
        #expect(found == Unpacked(["photo.png": .file([1, 2], isExecutable: false)]))
        await #expect(throws: ArchiveError.self) {
            try await bench.unpack([1], .file, fileName: "../photo.png")
        }
    }

    @Test func aZipComesOutAsItWentIn() async throws {
        var bench = try Bench()
        let zip = ZipBuilder(
            .init("a/", mode: 0o040755),
            .init("a/Übung", content: [1, 2, 3]),
            .init("tool", content: [4], mode: 0o100755),
            .init("link", content: Array("a/Übung".utf8), mode: 0o120777)
        )
        let (_, found) = try await bench.unpack(zip.bytes, .zip)
        let expected: [String: Unpacked.Thing] = [
            "a": .directory, "a/Übung": .file([1, 2, 3], isExecutable: false),
            "tool": .file([4], isExecutable: true), "link": .link("a/Übung"),
        ]
        #expect(found == Unpacked(expected))
    }

    @Test func anEmptyArchiveIsAnEmptyPack() async throws {
        var bench = try Bench()
        let (report, found) = try await bench.unpack(TarBuilder().finished, .tar)
        #expect(found == Unpacked([:]))
        #expect(report.files == 0)
    }

    @Test(arguments: ArchiveFormat.tars, ArchiveFormat.tars + [.zip])
    func anotherFormatThanTheDeclaredOneIsRefused(
        actual: ArchiveFormat,
        declared: ArchiveFormat
    ) async throws {
        guard actual != declared else { return }
        var bench = try Bench()
        let error = try await bench.refusal(actual.compress(SampleTree.tiny), declared)
        guard case .wrongFormat(declared, _)? = error else {
            Issue.record("found \(String(describing: error))")
            return
        }
    }

    @Test func progressIsReported() async throws {
        let root = try TemporaryDirectory.required()
        let content = [UInt8](repeating: 7, count: 5 << 20)
        let archive = try root.file(creating: "archive")
        try archive.write(TarBuilder(.init("a", content: content)).bytes.span, at: 0)
        for (index, mode) in try Self.modes().enumerated() {
            let unpacker = Unpacker(mode, logger: Logger(label: "test"))
            let request = UnpackRequest(
                archive: archive.descriptor,
                destination: try root.makeDirectory(FilePath("destination-\(index)")),
                format: .tar,
                limits: UnpackLimits(entries: 1, bytes: .mebibytes(5))
            )
            let box = Told()
            _ = try await unpacker.unpack(request) { box.add($0) }
            let values = box.values
            #expect(values == values.sorted() && (4...5).contains(values.count))
        }
    }

    private final class Told: Sendable {
        private let state = Mutex<[ByteCount]>([])
        var values: [ByteCount] { state.withLock { $0 } }
        func add(_ value: ByteCount) { state.withLock { $0.append(value) } }
    }
}

extension TarBuilder {
    var finished: [UInt8] {
        var copy = self
        copy.finish()
        return copy.bytes
    }
}
