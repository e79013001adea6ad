import Foundation
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

@testable import StageOrigin

@Suite(.tree, .serialized)
struct OriginFaultTests {
    static func bytes(_ count: Int) -> [UInt8] {
        (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }
    }

    @Test(arguments: [0, 1, 70_000, 900_000])
    func aDroppedBodyCanBeResumed(limit: Int) async throws {
        let content = Self.bytes(1_000_000)
        try TreeTrait.write("big", content)
        var configuration = OriginConfiguration()
        configuration.dropAfter = ByteCount(limit)
        try await OriginTests.serve(configuration) { port in
            let first = try await LoopbackClient(port: port).request("GET", "/big")
            #expect(first.status == 200 && !first.isComplete)
            #expect(first.body.count == limit)
            let rest = try await LoopbackClient(port: port).request(
                "GET",
                "/big",
                ["Range": "bytes=\(first.body.count)-", "If-Range": first.fields["etag"] ?? ""]
            )
            #expect(rest.status == 206 && rest.isComplete)
            #expect(first.body + rest.body == content)
        }
    }

    @Test
    func aRateIsKept() async throws {
        try TreeTrait.write("big", Self.bytes(20_000))
        var configuration = OriginConfiguration()
        configuration.bytesPerSecond = ByteCount(100_000)
        try await OriginTests.serve(configuration) { port in
            let start = ContinuousClock.now
            let reply = try await LoopbackClient(port: port).request("GET", "/big")
            #expect(reply.body.count == 20_000)
            #expect(ContinuousClock.now - start >= .milliseconds(150))
        }
    }

    @Test(arguments: [true, false])
    func aFileThatChangesWhileItIsSentBreaksTheConnection(getsShorter: Bool) async throws {
        let size = 64 << 20
        let path = TreeTrait.path.appending("big")
        try TreeTrait.write("big", [])
        try TreeTrait.resize("big", to: size)
        try await OriginTests.serve { port in
            let client = try LoopbackClient(port: port)
            client.start("GET", "/big")
            #expect(await client.replyHead().fields["content-length"] == "\(size)")
            if getsShorter {
                try TreeTrait.resize("big", to: 1 << 20)
            } else {
                let file = try FileDescriptor.open(path, .writeOnly)
                try file.closeAfter { _ = try file.writeAll(toAbsoluteOffset: 0, [1]) }
            }
            let body = await client.receive(size)
            #expect(body.count < size && body.allSatisfy { $0 == 0 })
        }
    }

    @Test
    func aFileThatIsReplacedWhileItIsSentIsSentToItsEnd() async throws {
        let size = 32 << 20
        try TreeTrait.write("big", [])
        try TreeTrait.resize("big", to: size)
        try await OriginTests.serve { port in
            let client = try LoopbackClient(port: port)
            client.start("GET", "/big")
            _ = await client.replyHead()
            try TreeTrait.write("new", [1])
            try TreeTrait.rename("new", to: "big")
            #expect(await client.receive(size).count == size)
        }
    }

    @Test
    func eachRequestIsReportedOnce() async throws {
        let log = AccessLog()
        var configuration = OriginConfiguration()
        configuration.onAccess = { record in log.append(record) }
        try await OriginTests.serve(configuration) { port in
            let client = try LoopbackClient(port: port)
            _ = await client.request("GET", "/digits.txt?a=b", ["Range": "bytes=1-3"])
            _ = await client.request("HEAD", "/digits.txt")
            _ = await client.request("GET", "/missing")
        }
        #expect(
            log.records == [
                AccessRecord(
                    method: "GET",
                    path: "/digits.txt?a=b",
                    status: 206,
                    bytes: ByteCount(3)
                ),
                AccessRecord(method: "HEAD", path: "/digits.txt", status: 200, bytes: .zero),
                AccessRecord(method: "GET", path: "/missing", status: 404, bytes: ByteCount(14)),
            ]
        )
    }

    @Test
    func whenTheScopeEndsNothingListensAndTransfersAreClosed() async throws {
        var configuration = OriginConfiguration()
        // The servers of other tests have other addresses.
        configuration.host = "127.0.0.9"
        configuration.bytesPerSecond = ByteCount(1)
        var open: LoopbackClient?
        var port = 0
        try await OriginTests.serve(configuration) {
            port = $0
            open = try LoopbackClient(port: port, host: 9)
            open?.start("GET", "/digits.txt")
            #expect(await open?.replyHead().status == 200)
        }
        let rest = await open?.receive(10)
        #expect((rest?.count ?? 10) < 10)
        // The test does not connect: a server of another test may listen at this port of all addresses.
        let number = String(port, radix: 16, uppercase: true)
        let address = "0900007F:" + String(repeating: "0", count: 4 - number.count) + number
        // A child process that another test has just created holds the socket until it executes its program.
        try await poll("the port is open") {
            let sockets = try File.open(reading: "/proc/net/tcp").readAll(limit: 64 << 20)
            return !String(decoding: sockets, as: UTF8.self).split(separator: "\n").contains {
                let fields = $0.split(separator: " ")
                return fields.count > 3 && fields[1] == address && fields[3] == "0A"
            }
        }
    }

    @Test
    func aPortInUseAndAMissingDirectoryAreErrors() async throws {
        try await OriginTests.serve { port in
            var configuration = OriginConfiguration()
            configuration.port = port
            await #expect {
                try await OriginTests.serve(configuration) { _ in }
            } throws: { error in
                guard case OriginError.address("127.0.0.1", port, _) = error else { return false }
                return true
            }
        }
        let missing = TreeTrait.path.appending("missing")
        #expect(
            throws: OriginError.directory(
                FileError("open", path: missing, errno: .noSuchFileOrDirectory)
            )
        ) {
            try Origin(missing, logger: OriginTests.quiet)
        }
    }

    @Test
    func anAddressIsWrittenAsAURL() {
        #expect(OriginAddress(host: "localhost", port: 80).baseURL == "http://localhost:80/")
        #expect(OriginAddress(host: "::1", port: 80).baseURL == "http://[::1]:80/")
    }
}

/// Access records of an origin.
private final class AccessLog: Sendable {
    private let list = Mutex<[AccessRecord]>([])

    var records: [AccessRecord] { list.withLock { $0 } }

    func append(_ record: AccessRecord) { list.withLock { $0.append(record) } }
}
