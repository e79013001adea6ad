import StageModel
import StageSystem
import SystemPackage
import Testing

@testable import StageArchive

/// The messages between a command, the unpacking service and its decoders.
struct ServiceMessageTests {
    private static let reports = [
        UnpackReport(files: 1, directories: 2, links: 3, bytes: ByteCount(Int64(4096))),
        UnpackReport(
            files: 1_000_000,
            directories: 0,
            links: 0,
            bytes: ManifestLimits.installedSize,
            confinement: Confinement(
                version: 6,
                restrictsFiles: true,
                restrictsNetwork: false,
                restrictsScope: true,
                filtersCalls: true
            )
        ),
    ]

    private static let answers: [ServiceAnswer] =
        reports.map(ServiceAnswer.report) + [
            .progress(.zero), .progress(.mebibytes(1)),
            .inventory(
                ArchiveInventory(
                    fileCount: 7,
                    directoryCount: 5,
                    installedSize: ByteCount(Int64(12))
                )
            ),
            .failure(.cancelled),
            .failure(.damaged(entry: "a/ü", "it ends early")),
            .failure(.tooLarge(entry: "b", limit: .kibibytes(4))),
            .failure(
                .fileSystem(FileError("open", path: "/nowhere", errno: .noSuchFileOrDirectory))
            ),
        ]

    private static let requests: [ServiceRequest] = [
        ServiceRequest(task: .count, format: .zip),
        ServiceRequest(
            task: .unpack(
                destination: "/srv/ä b",
                fileName: nil,
                UnpackLimits(entries: 3, bytes: .kibibytes(1), window: .mebibytes(8))
            ),
            format: .tarZstandard
        ),
        ServiceRequest(
            task: .unpack(
                destination: "",
                fileName: "data.bin",
                UnpackLimits(entries: 0, bytes: ByteCount(Int64.max), statedDirectories: 0)
            ),
            format: .file
        ),
    ]

    private func bytes(_ message: some ServiceMessage) -> [UInt8] {
        var fields = MessageFields()
        message.write(to: &fields)
        return fields.bytes
    }

    /// Reads a message at the other end of a socket.
    private func read<Message: ServiceMessage>(
        _ bytes: [UInt8],
        as type: Message.Type
    ) throws -> Message? {
        let (near, far) = try MessageSocket.pair()
        try near.send(bytes)
        return try far.receive()?.value(as: type)
    }

    /// Checks that a message can be decoded again, and that a truncated or longer one is invalid.
    private func check(_ message: some ServiceMessage) throws {
        func readAgain<Message: ServiceMessage>(_ bytes: [UInt8], _: Message) throws -> [UInt8]? {
            try read(bytes, as: Message.self).map { self.bytes($0) }
        }
        let written = bytes(message)
        #expect(try readAgain(written, message) == written)
        #expect(try readAgain(written + [0], message) == nil)
        for count in 0..<written.count {
            let part = Array(written.prefix(count))
            // The file name is the last field, which is optional.
            #expect(try readAgain(part, message).map { $0 == part } ?? true, "\(count) bytes")
        }
    }

    @Test func aMessageIsReadAsItWasWritten() throws {
        for answer in Self.answers { try check(answer) }
        for request in Self.requests { try check(request) }
        try check(ServiceStart.process(4711))
        try check(ServiceStart.failure(FileError("start", path: "service", errno: .noMemory)))
    }

    @Test func aReportKeepsItsFigures() throws {
        for report in Self.reports {
            let answer = try #require(
                try read(bytes(ServiceAnswer.report(report)), as: ServiceAnswer.self)
            )
            guard case .report(let received) = answer else {
                Issue.record("another answer")
                continue
            }
            #expect(received == report)
        }
    }

    /// Sizes from a compromised decoder are added to others.
    @Test(arguments: [-1, Int.min, Int.max, Int(ManifestLimits.installedSize.rawValue) + 1])
    func aSizeThatNoContentHasIsNoMessage(size: Int) throws {
        for head in [[0], [1, 1, 1, 1], [2, 1]] {
            var fields = MessageFields()
            for number in head + [size] { fields.add(number) }
            if head.count == 4 { for _ in 0..<5 { fields.add(1) } }
            #expect(try read(fields.bytes, as: ServiceAnswer.self) == nil)
        }
    }

    /// A compromised decoder may send text that is slow to compare; names in errors have at most 2,048 bytes.
    @Test(arguments: [(1024, true), (1025, false)])
    func textHasALimitOfCombiningCharacters(count: Int, isMessage: Bool) throws {
        let marks = String(repeating: "\u{301}", count: count)
        var failure = MessageFields()
        failure.add(3)
        failure.add(#"{"damaged":{"entry":"\#(marks)","_1":"it ends early"}}"#)
        #expect(try (read(failure.bytes, as: ServiceAnswer.self) != nil) == isMessage)
        let limits = UnpackLimits(entries: 0, bytes: .zero)
        let task = ServiceRequest.Task.unpack(destination: marks, fileName: nil, limits)
        let request = bytes(ServiceRequest(task: task, format: .tar))
        #expect(try (read(request, as: ServiceRequest.self) != nil) == isMessage)
    }

    /// libarchive's messages quote names.
    @Test func aLongerTextOfAnErrorIsCut() throws {
        let marks = [1500, 1024].map { String(repeating: "\u{301}", count: $0) }
        let failure = bytes(ServiceAnswer.failure(.damaged(entry: nil, marks[0])))
        guard case .failure(let error)? = try read(failure, as: ServiceAnswer.self) else {
            Issue.record("another answer")
            return
        }
        #expect(error == .damaged(entry: nil, marks[1]))
    }

    @Test(arguments: [[], [9], [0], [1, 255, 255, 255, 255, 255, 255, 255, 255]] as [[UInt8]])
    func invalidBytesAreNoMessage(bytes: [UInt8]) throws {
        #expect(try read(bytes, as: ServiceAnswer.self) == nil)
        #expect(try read(bytes, as: ServiceRequest.self) == nil)
        #expect(try read(bytes, as: ServiceStart.self) == nil)
    }
}
