import Foundation
import StageControl
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

@testable import StageDaemon

/// The order of the deletions of upload resources.
@Suite struct DeletionQueueTests {
    private func deletion(_ task: Int64, of user: UInt32) -> ResourceDeletion {
        ResourceDeletion(task: FullTask(task), owner: SessionRecord(1, of: user))
    }

    /// Returns the tasks whose deletions may run now.
    private func start(_ queue: inout DeletionQueue) -> [Int64] {
        var tasks: [Int64] = []
        while let deletion = queue.next() { tasks.append(deletion.task.record.id) }
        return tasks
    }

    @Test func usersTakeTurnsWithAFewDeletionsEach() {
        var queue = DeletionQueue()
        for task in Int64(1)...4 { queue.append(deletion(task, of: 1)) }
        let first = start(&queue)
        #expect(first == [1, 2])
        for user in UInt32(2)...5 {
            for number in Int64(1)...2 {
                queue.append(deletion(Int64(user) * 10 + number, of: user))
            }
        }
        let second = start(&queue)
        #expect(second == [21, 31, 41, 51, 22, 32])
        queue.end(of: 2)
        let third = start(&queue)
        #expect(third == [42])
        for _ in 1...2 { queue.end(of: 1) }
        let fourth = start(&queue)
        #expect(fourth == [3, 52])
    }

    @Test func aFullQueueDropsDeletionsOfTheUserWithTheMost() {
        var queue = DeletionQueue()
        let capacity = Int64(DeletionQueue.capacity)
        for task in 1...capacity { queue.append(deletion(task, of: 1)) }
        queue.append(deletion(-1, of: 2))
        queue.append(deletion(-2, of: 1))
        var tasks: [Int64] = []
        while let deletion = queue.next() {
            tasks.append(deletion.task.record.id)
            queue.end(of: deletion.owner.user)
        }
        #expect(tasks == [1, -1] + Array(2..<capacity))
    }
}

/// Cancelled uploads of two users, whose resources the daemon deletes at their servers.
@Suite(.directory, .daemon, .server, .severalUsers)
struct SharedDeletionTests {
    /// Counts connections that a client has closed.
    private final class ConnectionCounter: Sendable {
        private let count = Atomic(0)

        var value: Int { count.load(ordering: .relaxed) }

        func increase() { count.add(1, ordering: .relaxed) }
    }

    private let daemon: DaemonProcess
    private let peer: Peer
    private let server = TestServer.current
    /// Server that responds to no deletion.
    private let silent: TestServer
    private let abandoned = ConnectionCounter()
    private let user: UInt32 = 2

    init() async throws {
        daemon = try .required()
        try daemon.letOthersPass()
        try daemon.configure(#"{"settlingTime": 0}"#)
        try await daemon.start()
        peer = try Peer(daemon)
        silent = try TestServer()
        server.answer("/abort", with: .status(204))
        silent.answer(
            "/abort",
            with: .script { [abandoned] wire in
                wire.waitForEnd()
                abandoned.increase()
            }
        )
        let directory = try Directory.open(daemon.directory)
        try directory.write([1], to: "file", durably: false)
        try directory.changeMode(of: "file", to: [.ownerReadWrite, .groupRead, .otherRead])
    }

    /// Returns a paused upload in one part.
    private func upload(_ token: String, to server: TestServer) -> TransferRequest {
        var request = TransferRequest(token: token, kind: .upload, url: server.url("/object"))
        request.file = daemon.directory.appending("file").string
        request.isSuspended = true
        request.parts = UploadParts(
            parts: [UploadParts.Part(url: server.url("/part"), size: ByteCount(1))],
            completionURL: server.url("/complete"),
            abortURL: server.url("/abort")
        )
        return request
    }

    private func askAsUser(
        _ method: String,
        _ path: String,
        _ body: String
    ) async throws -> String {
        let answer = try await peer.ask(as: user, user, method, path, body)
        #expect(answer.status == 200, "\(answer)")
        return answer.body
    }

    /// Cancels uploads to the silent server, and then an upload of another user; returns whether that one is deleted before
    /// any of the first ones is given up.
    private func isDeletedMeanwhile(round: Int) async throws -> Bool {
        // Deletions of an earlier round would be taken for those of this one.
        try await poll("deletions do not end") {
            silent.counts(for: "/abort").requests == abandoned.value
        }
        let body = try ControlFormat.encode(NewTasks([upload("\(round)", to: server)]))
        let text = String(decoding: body, as: UTF8.self)
        let created = try await askAsUser("POST", "/v1/sessions/s/tasks", text)
        let ids = try ControlFormat.decode(CreatedTasks.self, from: Data(created.utf8)).ids
        let id = try #require(ids.first)
        let before = abandoned.value
        let uploads = (1...9).map { upload("\(round).\($0)", to: silent) }
        for id in try await daemon.client.createTasks(uploads, in: "s") {
            try await daemon.change(id, to: .cancelled)
        }
        _ = try await askAsUser("PATCH", "/v1/tasks/\(id)", #"{"state": "cancelled"}"#)
        try await poll("nothing is deleted") { server.counts(for: "/abort").requests == round }
        return abandoned.value == before
    }

    @Test func aServerThatIsSilentDelaysNoDeletionOfAnotherUser() async throws {
        try await daemon.makeSession()
        _ = try await askAsUser("PUT", "/v1/sessions/s", "{}")
        // On a busy machine, the first deletions may be given up before the other user's upload is cancelled.
        var round = 0
        try await poll("the deletion waits") {
            round += 1
            return try await isDeletedMeanwhile(round: round)
        }
        #expect(silent.counts(for: "/abort").requests > 0)
    }
}
