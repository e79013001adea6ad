import FoundationEssentials
import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// A user who uses up the disk space that the daemon grants.
@Suite(.directory, .daemon, .server)
struct StorageLimitTests {
    private let daemon: DaemonProcess
    private let server = TestServer.current
    private static let limit = 20 << 20

    init() async throws {
        daemon = try .required()
        let settings =
            #"{"settlingTime": 0, "retryBase": 0.05, "bytesPerUser": \#(Self.limit), "journalPerUser": 1000000}"#
        try daemon.configure(settings)
        try await daemon.start()
        try await daemon.makeSession()
    }

    private func upload(_ size: Int64, _ token: String) async throws -> Int64 {
        let file = try Directory.open(daemon.directory).file(updating: FilePath("upload"))
        try file.truncate(to: size)
        var request = TransferRequest(token: token, kind: .upload, url: server.url("/u"))
        request.file = daemon.directory.appending("upload").string
        request.isSuspended = true
        return try #require(try await daemon.client.createTasks([request], in: "s").first)
    }

    private func refusal(_ body: () async throws -> Void) async throws -> ControlRefusal.Code? {
        do {
            try await body()
            return nil
        } catch let error as ControlError {
            guard case .refused(let refusal) = error else { throw error }
            return refusal.code
        }
    }

    /// The bytes in a directory of the daemon's state.
    private func bytes(in name: String) throws -> Int64 {
        let directory = try Directory.open(daemon.state.appending(name))
        return try directory.entries().reduce(0) { sum, entry in
            sum + (try directory.status(entry.path)?.size ?? 0)
        }
    }

    @Test func sparseFilesCountWithTheirWholeSize() async throws {
        #expect(try await refusal { _ = try await upload(1 << 30, "a") } == .quota)
        #expect(try daemon.names(in: "snapshots") == [])
    }

    @Test func copiesOfOneUserAddUpOverAllRequests() async throws {
        let first = try await upload(8 << 20, "a")
        _ = try await upload(8 << 20, "b")
        #expect(try await refusal { _ = try await upload(8 << 20, "c") } == .quota)
        #expect(try daemon.names(in: "snapshots").count == 2)
        // A restarted daemon counts the same bytes.
        try await daemon.kill()
        try await daemon.start()
        #expect(try await refusal { _ = try await upload(8 << 20, "c") } == .quota)
        try await daemon.change(first, to: .cancelled)
        _ = try await upload(8 << 20, "c")
    }

    @Test func aDownloadWithoutEndFailsAtTheLimit() async throws {
        let endless = Answer(content: noise(1 << 18)).with {
            $0.isEndless = true
            $0.isChunked = true
        }
        .slowed(to: 10 << 20)
        server.answer("/endless", with: endless)
        try await daemon.download(server.url("/endless"))
        let failure = try #require(try await daemon.outcomes().first?.failure)
        #expect(failure.reason.contains("is larger than \(Self.limit) bytes"))
        #expect(failure.resumeToken == nil)
        #expect(server.counts(for: "/endless").bytes < 3 * Self.limit)
        #expect(try daemon.names(in: "parts") == [])
    }

    @Test func downloadsWaitUntilFinishedOnesAreTaken() async throws {
        server.answer("/a", with: .content(noise(12 << 20)))
        server.answer("/b", with: .content(noise(12 << 20, seed: 2)))
        try await daemon.download(server.url("/a"))
        _ = try await daemon.outcomes()
        let second = try await daemon.download(server.url("/b"))
        try await daemon.wait(for: [.quota], of: second)
        #expect(try bytes(in: "parts") == 0)
        try await daemon.client.acknowledge(Acknowledgement(sequence: 1), in: "s")
        let outcomes = try await daemon.outcomes(after: 1)
        #expect(outcomes.map(\.gist) == ["2 completed of \(second)"])
    }

    @Test func aFileThatWasMovedAwayDoesNotCountAgainstTheQuota() async throws {
        server.answer("/a", with: .content(noise(12 << 20)))
        try await daemon.download(server.url("/a"))
        let location = try #require(try await daemon.outcomes().first?.location)
        #expect(try await refusal { _ = try await upload(12 << 20, "b") } == .quota)
        let path = FilePath(location)
        let name = try #require(path.lastComponent)
        try Directory.open(path.removingLastComponent())
            .rename(name, to: "taken", in: Directory.open(daemon.directory))
        _ = try await upload(12 << 20, "b")
    }

    @Test func theJournalOfOneUserHasALimit() async throws {
        var created = 0
        let code = try await refusal {
            for number in 0..<100 {
                var request = TransferRequest(token: "\(number)", kind: .download, url: "http://a/")
                request.headers = ["A": String(repeating: "x", count: 16_000)]
                request.isSuspended = true
                _ = try await daemon.client.createTasks([request], in: "s")
                created += 1
            }
        }
        #expect(code == .quota && (50...62).contains(created))
        var change = TransferChange()
        change.description = String(repeating: "d", count: 4096)
        let more = try await refusal {
            for task in 1...Int64(created) { try await daemon.client.change(task, by: change) }
        }
        #expect(more == .quota)
        #expect(
            try await refusal {
                try await daemon.makeSession("t") {
                    $0.headers = ["A": String(repeating: "x", count: 16_000)]
                }
            } == .quota
        )
        #expect(try await daemon.client.tasks(in: "s").count == created)
        // A restarted daemon counts the same bytes, and a removal frees them.
        try await daemon.kill()
        try await daemon.start()
        #expect(
            try await refusal {
                _ = try await daemon.makeSession("t") {
                    $0.headers = ["A": String(repeating: "x", count: 16_000)]
                }
            } == .quota
        )
        try await daemon.client.removeSession("s")
        for number in 0..<3 {
            try await daemon.makeSession("t\(number)") {
                $0.headers = ["A": String(repeating: "x", count: 16_000)]
            }
        }
        try await daemon.makeSession("s")
        for start in stride(from: 0, to: 1500, by: 500) {
            let requests = (start..<start + 500).map { number in
                TransferRequest(token: "\(number)", kind: .download, url: "http://a/")
            }
            _ = try await daemon.client.createTasks(requests, in: "s")
        }
    }

    @Test func aLongListIsListedInPages() async throws {
        try daemon.configure(#"{"settlingTime": 0}"#)
        try await daemon.kill()
        try await daemon.start()
        // A list of 48 MB: more than the memory that sending it may take.
        for start in 0..<50 {
            let requests = (0..<15).map { number in
                var request = TransferRequest(
                    token: "\(start)-\(number)",
                    kind: .download,
                    url: "http://a/"
                )
                let field = String(repeating: "x", count: 16_000)
                request.headers = ["A": field, "B": field, "C": field, "D": field]
                request.isSuspended = true
                return request
            }
            _ = try await daemon.client.createTasks(requests, in: "s")
        }
        try daemon.forgetPeak()
        let before = try daemon.residentBytes()
        let tasks = try await daemon.client.tasks()
        #expect(tasks.map(\.id) == Array(1...750))
        let taken = try daemon.peakBytes() - before
        #expect(taken < 8 << 20, "\(taken)")
    }
}

/// Sessions of all users, and the file system of the daemon's state.
@Suite(.directory, .daemon, .server, .severalUsers)
struct SharedLimitTests {
    private let daemon: DaemonProcess
    private let peer: Peer

    init() throws {
        daemon = try .required()
        try daemon.letOthersPass()
        peer = try Peer(daemon)
    }

    /// Creates sessions as one user after the other, and prints the number of each user's sessions and the response to the next
    /// request, then the response to a change of the first session.
    private static let sessions = """
        import http.client, os, socket
        for user in range(1, 18):
            os.seteuid(0)
            os.seteuid(user)
            client = http.client.HTTPConnection('stagepack')
            client.sock = socket.socket(socket.AF_UNIX)
            client.sock.connect(os.environ['STAGEPACK_SOCKET'])
            def make(name):
                client.request('PUT', '/v1/sessions/' + name, '{}')
                answer = client.getresponse()
                answer.read()
                return answer.status
            made = 0
            while made < 300 and (status := make('s%d' % made)) == 200: made += 1
            print(user, made, status, make('s0'))
        """

    @Test func sessionsHaveALimitForAUserAndForAll() async throws {
        try await daemon.start()
        let answer = try await peer.run(as: 0, 0, ["/usr/bin/python3", "-c", Self.sessions])
        let expected = (1...16).map { "\($0) 256 429 200\n" }.joined() + "17 0 503 503\n"
        #expect(answer == expected)
    }

    /// Starts the daemon with a separate file system for its state, and returns the state directory.
    private func start(onFileSystemOf options: String) async throws -> Directory {
        _ = try Directory.make(daemon.state)
        let script = #"mount -t tmpfs -o "mode=711,$1" none "$0" && shift && exec "$@""#
        let mounting = ["/bin/sh", "-c", script, daemon.state.string, options]
        try await daemon.start(by: ["/usr/bin/unshare", "--mount"] + mounting)
        let process = try #require(daemon.process)
        return try Directory.open(FilePath("/proc/\(process)/root\(daemon.state)"))
    }

    @Test func theReserveStaysFreeOnTheDisk() async throws {
        try daemon.configure(
            #"{"settlingTime": 0, "retryBase": 0.05, "reserve": \#(32 << 20)}"#
        )
        let state = try await start(onFileSystemOf: "size=64m")
        try await daemon.makeSession()
        // A file to upload counts with its full size before it is copied.
        let file = try Directory.open(daemon.directory).file(updating: FilePath("upload"))
        try file.truncate(to: 40 << 20)
        var upload = TransferRequest(token: "u", kind: .upload, url: "http://127.0.0.1:9/")
        upload.file = daemon.directory.appending("upload").string
        let request = upload
        let error = await #expect(throws: ControlError.self) {
            _ = try await daemon.client.createTasks([request], in: "s")
        }
        if case .refused(let refusal)? = error {
            #expect(refusal.code == .storage)
        } else {
            Issue.record("expected a refusal, found \(String(describing: error))")
        }
        // A download of unknown size is stopped after at most 4 MiB beyond the limit.
        let server = TestServer.current
        server.answer("/a", with: .content(noise(60 << 20)).chunked())
        let task = try await daemon.download(server.url("/a"))
        try await daemon.wait(for: [.disk], of: task)
        let free = try state.freeSpace().bytes
        #expect((28 << 20..<64 << 20).contains(free), "\(free)")
        #expect(server.counts(for: "/a").bytes > 16 << 20)
    }

    @Test func aFullDiskEndsATaskThatDoesNotWait() async throws {
        try daemon.configure(
            #"{"settlingTime": 0, "retryBase": 0.05, "reserve": \#(32 << 20)}"#
        )
        _ = try await start(onFileSystemOf: "size=64m")
        try await daemon.makeSession()
        let server = TestServer.current
        server.answer("/a", with: .content(noise(60 << 20)).chunked())
        let task = try await daemon.download(server.url("/a")) { $0.failsWithoutRetry = true }
        try await daemon.wait(for: .failed, of: task)
        #expect(try await daemon.client.task(task).lastProblem == "the disk is full")
    }

    @Test func aUserHasAQuarterOfTheFilesOfTheFileSystem() async throws {
        _ = try await start(onFileSystemOf: "nr_inodes=400")
        let directory = try Directory.open(daemon.directory)
        try directory.write([1], to: "file", durably: false)
        try directory.changeMode(of: "file", to: [.ownerReadWrite, .groupRead, .otherRead])
        func create(_ count: Int, as user: UInt32) async throws -> Int {
            _ = try await peer.ask(as: user, user, "PUT", "/v1/sessions/s", "{}")
            let file = daemon.directory.appending("file")
            let tasks = (0..<count).map { number in
                #"{"token": "\#(count).\#(number)", "kind": "upload", "url": "http://127.0.0.1:9/", "#
                    + #""file": "\#(file)", "isSuspended": true}"#
            }
            let body = #"{"tasks": [\#(tasks.joined(separator: ","))]}"#
            return try await peer.ask(as: user, user, "POST", "/v1/sessions/s/tasks", body).status
        }
        #expect(try await create(90, as: 1) == 200)
        #expect(try await create(20, as: 1) == 429)
        #expect(try await create(10, as: 1) == 200)
        #expect(try await create(90, as: 2) == 200)
    }
}

/// A user whose programs use up the connections and the memory that the daemon grants.
@Suite(.apart, .directory, .daemon, .severalUsers)
struct ConnectionLimitTests {
    private let daemon: DaemonProcess
    private let peer: Peer

    init() async throws {
        daemon = try .required()
        try daemon.letOthersPass()
        try await daemon.start()
        try await daemon.makeSession()
        peer = try Peer(daemon)
    }

    /// Expects that the daemon responds to another user in time.
    private func expectOthersAreServed() async throws {
        let began = ContinuousClock.now
        for _ in 0..<3 { #expect(try await peer.ask(as: 1, 1, "GET", "/v1/").status == 200) }
        // Most of this time is the start of the client program. Without a share of its own, the user would get no response.
        #expect(ContinuousClock.now - began < .seconds(30))
    }

    @Test func thousandsOfConnectionsLeaveOthersTheirs() async throws {
        var clients: [UnixSocket] = []
        for _ in 0..<3000 { clients.append(try UnixSocket.connect(to: daemon.socket)) }
        try await expectOthersAreServed()
        _ = try await daemon.client.status()
        #expect(try daemon.descriptorCount() < 400)
        for client in clients { client.shutDown() }
    }

    @Test func bodiesThatDoNotEndTakeLittleMemory() async throws {
        let before = try daemon.residentBytes()
        var clients: [UnixSocket] = []
        let head =
            "POST /v1/sessions/s/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
        let body = [UInt8](repeating: 0x20, count: 900_000)
        for _ in 0..<100 {
            let client = try UnixSocket.connect(to: daemon.socket)
            clients.append(client)
            await withBlockingThread {
                // The daemon may refuse a request before it has read all of it.
                _ = try? client.send(Array(head.utf8) + body)
            }
        }
        let taken = try daemon.residentBytes() - before
        #expect(taken < 50 << 20, "\(taken)")
        try await expectOthersAreServed()
        for client in clients { client.shutDown() }
    }

    @Test func streamsOfOneUserHaveALimit() async throws {
        var clients: [UnixSocket] = []
        var agreed = 0
        for _ in 0..<100 {
            let client = try UnixSocket.connect(to: daemon.socket)
            try client.send(Array("GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n".utf8))
            let answer = try await withBlockingThread { () throws(FileError) in
                try client.receive()
            }
            if String(decoding: answer, as: UTF8.self).hasPrefix("HTTP/1.1 200") { agreed += 1 }
            clients.append(client)
        }
        #expect(agreed == 64)
        _ = try await daemon.client.status()
        try await expectOthersAreServed()
        for client in clients { client.shutDown() }
    }

    @Test func requestsThatDripAreCutOff() async throws {
        let pieces = [
            "GET /v1/ HTTP/1.1\r\nA",
            "POST /v1/sessions/s/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{",
        ]
        for piece in pieces {
            let client = try UnixSocket.connect(to: daemon.socket)
            try client.send(Array(piece.utf8))
            // The exact limits are those of ClientDeadlineTests.
            let deadline = ContinuousClock.now + .seconds(300)
            await withBlockingThread {
                try? client.setTimeout(.seconds(1))
                // The client sends bytes continuously, but never a complete request.
                while ContinuousClock.now < deadline, (try? client.send([0x20])) != nil {
                    if let bytes = try? client.receive(), bytes.isEmpty { return }
                }
            }
            #expect(ContinuousClock.now < deadline)
        }
    }

    @Test func withoutDescriptorsTheDaemonWaitsAndContinues() async throws {
        // The limit is lower than the one from which the daemon derived its limits, as if transfers had many files open.
        let most = try daemon.descriptorCount() + 6
        let process = try #require(daemon.process)
        let command = ["/usr/bin/prlimit", "--pid=\(process)", "--nofile=\(most):\(most)"]
        _ = try await peer.run(as: 0, 0, command)
        var clients: [UnixSocket] = []
        for _ in 0..<60 { clients.append(try UnixSocket.connect(to: daemon.socket)) }
        try await poll("descriptors are left") { try daemon.descriptorCount() >= most }
        let (began, before) = (ContinuousClock.now, try processorTime())
        try await poll("time stands still") { ContinuousClock.now - began > .seconds(2) }
        #expect(try processorTime() - before < 50)
        for client in clients { client.shutDown() }
        clients = []
        // Each of these is accepted by a read of its own.
        for _ in 0..<20 { _ = try await daemon.client.status() }
    }

    /// The processor time that the daemon has used, in hundredths of a second.
    private func processorTime() throws -> Int {
        let process = try #require(daemon.process)
        let fields = try text(of: FilePath("/proc/\(process)/stat")).split(separator: " ")
        return (Int(fields[13]) ?? 0) + (Int(fields[14]) ?? 0)
    }
}

extension DaemonProcess {
    /// Resets the kernel's record of the daemon's peak memory (proc(5)).
    func forgetPeak() throws {
        let process = try #require(process)
        let path = FilePath("/proc/\(process)/clear_refs")
        let file = try SystemPackage.FileDescriptor.open(path, .writeOnly)
        try file.closeAfter { _ = try file.writeAll("5".utf8) }
    }

    /// The most memory that the daemon had since ``forgetPeak()``.
    func peakBytes() throws -> Int {
        let process = try #require(process)
        let line = try #require(
            try text(of: FilePath("/proc/\(process)/status")).split(separator: "\n")
                .first { $0.hasPrefix("VmHWM:") }
        )
        let kibibytes = line.split(whereSeparator: \.isWhitespace).dropFirst().first
        return try #require(kibibytes.flatMap { Int($0) }) << 10
    }

    /// The memory that the daemon has.
    func residentBytes() throws -> Int {
        let process = try #require(process)
        let pages = try text(of: FilePath("/proc/\(process)/statm")).split(separator: " ")
        return (Int(pages[1]) ?? 0) * Int(getpagesize())
    }
}
