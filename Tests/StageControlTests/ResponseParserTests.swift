import Testing

@testable import StageControl

struct ResponseParserTests {
    /// A valid response, its status and its body.
    struct Sample: Sendable, CustomTestStringConvertible {
        var bytes: String
        var status: Int
        var body: String

        var testDescription: String { String(bytes.prefix(60)) }
    }

    static let samples = [
        Sample(bytes: "HTTP/1.1 204 No Content\r\n\r\n", status: 204, body: ""),
        Sample(bytes: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", status: 200, body: ""),
        Sample(bytes: "HTTP/1.1 200\r\ncontent-length:2\r\n\r\n{}", status: 200, body: "{}"),
        Sample(
            bytes: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 x\r\nContent-Length: 1\r\n\r\n1",
            status: 201,
            body: "1"
        ),
        Sample(
            bytes: "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n"
                + "3\r\nabc\r\nA;name=value\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n",
            status: 404,
            body: "abc0123456789"
        ),
    ]

    @Test(arguments: samples)
    func anAnswerIsReadInOnePiece(_ sample: Sample) throws {
        var parser = ResponseParser()
        let parts = try parser.read(Array(sample.bytes.utf8))
        #expect(Self.content(parts) == (sample.status, sample.body))
        #expect(parts.last == .end)
        #expect(parser.isComplete)
    }

    @Test(arguments: samples)
    func anAnswerIsReadByteForByte(_ sample: Sample) throws {
        var parser = ResponseParser()
        var parts: [ResponseParser.Part] = []
        for byte in sample.bytes.utf8 { parts += try parser.read([byte]) }
        #expect(Self.content(parts) == (sample.status, sample.body))
        #expect(parts.last == .end)
    }

    @Test(arguments: samples)
    func anAnswerThatIsCutAnywhereIsNotComplete(_ sample: Sample) throws {
        let bytes = Array(sample.bytes.utf8)
        for count in bytes.indices {
            var parser = ResponseParser()
            let parts = try parser.read(Array(bytes[..<count]))
            #expect(!parts.contains(.end), "cut after \(count) bytes")
            #expect(!parser.isComplete, "cut after \(count) bytes")
        }
    }

    @Test func aBodyWithoutALengthEndsWithTheConnection() throws {
        var parser = ResponseParser()
        let parts = try parser.read(Array("HTTP/1.1 200 OK\r\n\r\nsome".utf8))
        #expect(Self.content(parts) == (200, "some"))
        #expect(parser.isComplete)
    }

    @Test(arguments: [
        "HTTP/2 200\r\n\r\n", "200 OK\r\n\r\n", "HTTP/1.1 20\r\n\r\n", "HTTP/1.1 0x2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno field\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1 1\r\n\r\n", "HTTP/1.1 +20\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chun ked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-0\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1 0\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    ])
    func aMalformedResponseIsRefused(_ text: String) {
        #expect {
            var parser = ResponseParser()
            _ = try parser.read(Array(text.utf8))
        } throws: { error in
            guard case .malformed? = error as? ControlError else { return false }
            return true
        }
    }

    @Test(arguments: [
        "HTTP/1.1 200 OK\r\nX: ",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;",
    ])
    func aHeadOrLineWithoutAnEndIsRefused(_ text: String) {
        #expect(throws: ControlError.tooLarge(limit: 65_536)) {
            var parser = ResponseParser()
            _ = try parser.read(Array(text.utf8))
            _ = try parser.read([UInt8](repeating: 0x61, count: ResponseParser.headLimit + 1))
        }
    }

    /// The limit does not depend on the pieces in which the bytes arrive: all at once, or the last byte separately.
    @Test(arguments: [0, 1], ["X: ", "Transfer-Encoding: chunked\r\n\r\n1;"])
    func aHeadOrLineOfMoreThanTheLimitIsRefused(excess: Int, text: String) throws {
        let start = text.firstIndex(of: "1").map {
            text.utf8.distance(from: text.startIndex, to: $0)
        }
        let head = Array("HTTP/1.1 200 OK\r\n\(text)".utf8)
        let end = Array((start == nil ? "\r\n\r\n" : "\r\n").utf8)
        let counted = start.map { head.count - 17 - $0 } ?? head.count
        let count = ResponseParser.headLimit + 1 + excess - counted - end.count
        let bytes = head + [UInt8](repeating: 0x61, count: count) + end
        for cut in [0, bytes.count - 1] {
            var parser = ResponseParser()
            let read = { () throws(ControlError) in
                _ = try parser.read(Array(bytes[..<cut]))
                _ = try parser.read(Array(bytes[cut...]))
            }
            if excess == 0 {
                #expect(throws: Never.self) { try read() }
            } else {
                #expect(throws: ControlError.tooLarge(limit: 65_536)) { try read() }
            }
        }
    }

    @Test(arguments: [0, 1], [0, LineSplitter.limit])
    func aLineOfMoreThanTheLimitIsRefused(excess: Int, cut: Int) {
        let bytes = [UInt8](repeating: 0x61, count: LineSplitter.limit + excess) + [10]
        var splitter = LineSplitter()
        let read = { () throws(ControlError) in
            try splitter.read(Array(bytes[..<cut])) + splitter.read(Array(bytes[cut...]))
        }
        if excess == 0 {
            #expect(throws: Never.self) { try read() }
        } else {
            #expect(throws: ControlError.tooLarge(limit: LineSplitter.limit)) { try read() }
        }
    }

    @Test func linesAreTheSameHoweverTheyArrive() throws {
        let text = Array("{\"a\":1}\n\n{\"b\":2}\r\nrest".utf8)
        for size in 1...text.count {
            var splitter = LineSplitter()
            var lines: [[UInt8]] = []
            for start in stride(from: 0, to: text.count, by: size) {
                lines += try splitter.read(Array(text[start..<min(start + size, text.count)]))
            }
            #expect(lines == [Array("{\"a\":1}".utf8), Array("{\"b\":2}".utf8)])
            #expect(splitter.remainder == Array("rest".utf8))
        }
    }

    @Test func aLineWithoutAnEndIsRefused() {
        #expect(throws: ControlError.tooLarge(limit: LineSplitter.limit)) {
            var splitter = LineSplitter()
            _ = try splitter.read([UInt8](repeating: 0x61, count: LineSplitter.limit + 1))
        }
    }

    private static func content(_ parts: [ResponseParser.Part]) -> (Int, String) {
        var status = 0
        var body: [UInt8] = []
        for part in parts {
            switch part {
            case .status(let number): status = number
            case .body(let bytes): body += bytes
            case .end: break
            }
        }
        return (status, String(decoding: body, as: UTF8.self))
    }
}
