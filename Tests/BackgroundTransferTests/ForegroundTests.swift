import BackgroundTransfer
import Foundation
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// Data, download and upload tasks of a session in this process, at a server of the test.
@Suite(.server, .directory, .timeLimit(.minutes(5)))
struct ForegroundTests: ForegroundSuite {
    // MARK: - Data

    @Test(arguments: [200, 404, 500])
    func aResponseOfAnyStatusIsReturned(_ status: Int) async throws {
        server.answer("/a", with: .content(Array("words".utf8)).with { $0.status = status })
        let (data, response) = try await session().data(from: url("/a"))
        #expect(String(decoding: data, as: UTF8.self) == "words")
        #expect((response as? HTTPURLResponse)?.statusCode == status)
        #expect(server.counts(for: "/a").requests == 1, "no answer is asked for twice")
    }

    @Test func anErrorStatusFailsWhereTheRulesSaySo() async throws {
        server.answer("/a", with: .status(404))
        let session = session { $0.failsOnErrorStatus = true }
        await expect(code: .fileDoesNotExist) { try await session.data(from: url("/a")) }
        await expect(code: .fileDoesNotExist) { try await session.download(from: url("/a")) }
    }

    @Test func aCompletionHandlerIsCalledOnceOnTheQueue() async throws {
        server.answer("/a", with: .content([1, 2, 3]))
        let queue = OperationQueue()
        queue.maxConcurrentOperationCount = 1
        let session = URLSession(configuration: .ephemeral, delegate: nil, delegateQueue: queue)
        let calls = Mutex<[Bool]>([])
        let task = session.dataTask(with: try url("/a")) { data, response, error in
            let isGood = data == Data([1, 2, 3]) && response != nil && error == nil
            calls.withLock { $0.append(isGood && OperationQueue.current === queue) }
        }
        #expect(task.state == .suspended)
        task.resume()
        try await poll { task.state == .completed && !calls.withLock(\.isEmpty) }
        #expect(calls.withLock { $0 } == [true])
        #expect(task.countOfBytesReceived == 3)
    }

    @Test func theSharedSessionHasDataTasks() async throws {
        server.answer("/shared", with: .content([9]))
        let (data, _) = try await URLSession.shared.data(from: url("/shared"))
        #expect(data == Data([9]))
    }

    @Test func aDelegateReceivesCallsInOrder() async throws {
        server.answer("/a", with: .content(data(300_000)))
        let recorder = DataRecorder()
        let session = session(recorder)
        session.dataTask(with: try url("/a")).resume()
        try await poll { recorder.lines.last == "completed: -" }
        let lines = recorder.lines
        #expect(lines.first == "response 200, 300000")
        #expect(lines.dropFirst().dropLast(2).allSatisfy { $0 == "data" })
        #expect(lines.dropLast().last == "metrics 1")
        #expect(recorder.data == Data(data(300_000)))
    }

    @Test func aBodyIsDecodedAndItsLengthIsNotExpected() async throws {
        let plain = Data(String(repeating: "wallpaper ", count: 2000).utf8)
        // The content compressed by gzip(1).
        let packed = try #require(
            Data(
                base64Encoded:
                    "H4sIAAAAAAACA+3GIREAQAgAsCpfDfEOwWGoTwzMpjaRWVG/35iZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZ"
                    + "mZmZmZmZmZ2eEWtZXtMSBOAAA="
            )
        )
        server.answer("/a", with: .content([UInt8](packed)).field("Content-Encoding", "gzip"))
        let recorder = DataRecorder()
        let session = session(recorder)
        let task = session.dataTask(with: try url("/a"))
        task.resume()
        try await poll { recorder.lines.last == "completed: -" }
        #expect(recorder.data == plain)
        #expect(task.countOfBytesExpectedToReceive == -1)
        #expect(server.requests[0]["accept-encoding"]?.contains("gzip") == true)
    }

    @Test func aBodyThatCannotBeDecodedFails() async throws {
        server.answer("/a", with: .content([1, 2, 3]).field("Content-Encoding", "gzip"))
        await expect(code: .cannotDecodeContentData) { try await session().data(from: url("/a")) }
    }

    @Test func aCutAnswerIsNotGivenOut() async throws {
        server.answer("/a", with: .content(data(100_000)).cut(after: 50_000))
        await expect(code: .networkConnectionLost) { try await session().data(from: url("/a")) }
    }

    @Test func aServerThatIsSilentTimesOut() async throws {
        server.answer("/a", with: .content(data(1000)).stalled(after: 10))
        var request = URLRequest(url: try url("/a"))
        request.timeoutInterval = 0.3
        await expect(code: .timedOut) { [request] in try await session().data(for: request) }
    }

    @Test func aTaskEndsAtTheLimitOfTheResource() async throws {
        server.answer("/a", with: .content(data(100_000)).slowed(to: 2000))
        let session = session { $0.timeoutIntervalForResource = 0.3 }
        await expect(code: .timedOut) { try await session.data(from: url("/a")) }
    }

    @Test func connectionsThatDoNotComeAboutHaveTheirCodes() async throws {
        let closed = try #require(URL(string: closedURL))
        await expect(code: .cannotConnectToHost) { try await session().data(from: closed) }
        await expect(code: .cannotConnectToHost) { try await session().download(from: closed) }
        let nowhere = try #require(URL(string: "http://nowhere.invalid/a"))
        let code = URLError.Code.ofUnknownName
        await expect(code: code) { try await session().data(from: nowhere) }
        await expect(code: code) { try await session().download(from: nowhere) }
        let odd = try #require(URL(string: "gopher://127.0.0.1/a"))
        await expect(code: .unsupportedURL) { try await session().data(from: odd) }
    }

    @Test func aTaskThatWaitsForANetworkWaitsForNoServer() async throws {
        let closed = try #require(URL(string: closedURL))
        let recorder = DataRecorder()
        let session = session(recorder) { rules in
            rules.waitsForConnectivity = true
            rules.timeoutIntervalForResource = 60
        }
        await expect(code: .cannotConnectToHost) { try await session.data(from: closed) }
        await expect(code: .cannotConnectToHost) { try await session.download(from: closed) }
        #expect(!recorder.lines.contains("waiting"))
    }

    @Test func aCancelledCallThrowsAndEndsItsTransfer() async throws {
        server.answer("/a", with: .content(data(1000)).stalled(after: 10))
        let session = session()
        let address = try url("/a")
        let call = Task { try await session.data(from: address) }
        try await poll { server.counts(for: "/a").requests == 1 }
        call.cancel()
        await expect(code: .cancelled) { try await call.value }
        #expect(await session.allTasks.isEmpty)
    }

    @Test func aSuspendedTaskTakesNothingMoreUntilItIsResumed() async throws {
        let size = 64 << 20
        server.answer("/a", with: .content([UInt8](repeating: 7, count: size)))
        let recorder = DataRecorder()
        let session = session(recorder)
        let task = session.dataTask(with: try url("/a"))
        recorder.whenResponding { task.suspend() }
        task.resume()
        try await poll { recorder.lines.contains("response 200, \(size)") }
        // The buffers of the connection and of both systems take some of the bytes.
        try await poll { task.state == .suspended }
        let count = try await pollUntilUnchanged { recorder.data.count }
        #expect(count < size / 2)
        task.resume()
        try await poll { recorder.lines.last == "completed: -" }
        #expect(recorder.data.count == size)
    }

    @Test func anAnswerThatIsNotWantedEndsTheTask() async throws {
        server.answer("/a", with: .content(data(100_000)))
        let recorder = DataRecorder(.cancel)
        session(recorder).dataTask(with: try url("/a")).resume()
        try await poll { recorder.lines.last == "completed: -999" }
        #expect(recorder.data.isEmpty)
    }

    @Test func aDataTaskBecomesADownload() async throws {
        server.answer("/a", with: .content(data(100_000)))
        let recorder = DataRecorder(.becomeDownload)
        let session = session(recorder)
        session.dataTask(with: try url("/a")).resume()
        try await poll { recorder.lines.last == "completed: -" }
        #expect(recorder.lines.contains("became a download"))
        #expect(recorder.file == Data(data(100_000)))
        #expect(recorder.data.isEmpty)
        #expect(await session.allTasks.isEmpty)
    }

    /// The response to a request for a file is not an HTTP response.
    @Test func aDataTaskOfAFileBecomesADownloadWithItsResponse() async throws {
        let file = try TemporaryDirectory.required().path.appending("text")
        let url = URL(fileURLWithPath: file.string)
        try Data("local".utf8).write(to: url)
        let recorder = DataRecorder(.becomeDownload)
        let task = session(recorder).dataTask(with: url)
        task.resume()
        try await poll { recorder.lines.last == "completed: -" }
        #expect(recorder.file == Data("local".utf8))
        let download = try #require(recorder.download)
        #expect(download.response?.url == url && download.response?.expectedContentLength == 5)
        #expect(task.response?.url == url)
    }

    @Test func aFileIsReadWithoutAServer() async throws {
        let file = try TemporaryDirectory.required().path.appending("text")
        try Data("local".utf8).write(to: URL(fileURLWithPath: file.string))
        let (data, response) = try await session().data(from: URL(fileURLWithPath: file.string))
        #expect(String(decoding: data, as: UTF8.self) == "local")
        #expect(response.expectedContentLength == 5)
        await expect(code: .fileDoesNotExist) {
            try await session().data(from: URL(fileURLWithPath: file.string + ".not"))
        }
    }

    // MARK: - Bytes

    @Test func bytesComeInOrderAndLinesAreText() async throws {
        server.answer("/a", with: .content(Array("one\r\ntwo\n\nthree".utf8)))
        let (bytes, response) = try await session().bytes(from: url("/a"))
        #expect((response as? HTTPURLResponse)?.statusCode == 200)
        var lines: [String] = []
        for try await line in bytes.lines { lines.append(line) }
        #expect(lines == ["one", "two", "three"])
        server.answer("/b", with: .content(data(3_000_000)))
        let (more, _) = try await session().bytes(from: url("/b"))
        var count = 0
        for try await byte in more {
            guard byte == UInt8(truncatingIfNeeded: count / 7) else { break }
            count += 1
        }
        #expect(count == 3_000_000)
    }

    @Test func linesEndAsOnApplesSystems() async throws {
        let text =
            "\na\rb\u{B}\u{C}c\u{85}\u{85}d\u{2028}e\u{2029}\r\n"
            + "\u{A9}é\u{2026}\u{2E85}\tf\u{2028}"
        server.answer("/a", with: .content(Array(text.utf8)))
        let (bytes, _) = try await session().bytes(from: url("/a"))
        var lines: [String] = []
        for try await line in bytes.lines { lines.append(line) }
        #expect(lines == ["a", "b", "c", "d", "e", "\u{A9}é\u{2026}\u{2E85}\tf"])
    }

    @Test func aLineThatIsNoUnicodeIsRepaired() async throws {
        // The first bytes of U+0085 and U+2028, without the remaining ones.
        server.answer("/a", with: .content([0xC2, 0x0A, 0xE2, 0x80, 0x0D, 0x85, 0xA8]))
        let (bytes, _) = try await session().bytes(from: url("/a"))
        var lines: [String] = []
        for try await line in bytes.lines { lines.append(line) }
        #expect(lines == ["\u{FFFD}", "\u{FFFD}", "\u{FFFD}\u{FFFD}"])
    }

    @Test func aServerWaitsForAReader() async throws {
        server.answer("/a", with: .content([UInt8](repeating: 7, count: 64 << 20)))
        let (bytes, _) = try await session().bytes(from: url("/a"))
        var iterator = bytes.makeAsyncIterator()
        _ = try await iterator.next()
        let count = try await pollUntilUnchanged { bytes.task.countOfBytesReceived }
        #expect(count < 32 << 20)
        bytes.task.cancel()
        await expect(code: .cancelled) {
            while try await iterator.next() != nil {}
        }
    }

    @Test func unreadBytesEndTheirTransfer() async throws {
        server.answer("/a", with: .content([UInt8](repeating: 7, count: 64 << 20)))
        let session = session()
        let task: URLSessionDataTask
        do {
            let (bytes, _) = try await session.bytes(from: url("/a"))
            task = bytes.task
        }
        try await poll { task.state == .completed }
    }

    @Test func aCancelledReaderHasAnError() async throws {
        server.answer("/a", with: .content(data(1000)).stalled(after: 10))
        let session = session()
        let address = try url("/a")
        let count = Mutex(0)
        let reader = Task {
            for try await _ in try await session.bytes(from: address).0 {
                count.withLock { $0 += 1 }
            }
        }
        try await poll { count.withLock { $0 } == 10 }
        reader.cancel()
        await expect(code: .cancelled) { try await reader.value }
    }

    @Test func bytesOfACutAnswerEndWithAnError() async throws {
        server.answer("/a", with: .content(data(100_000)).cut(after: 50_000))
        let (bytes, _) = try await session().bytes(from: url("/a"))
        await expect(code: .networkConnectionLost) { for try await _ in bytes {} }
    }
}
