import BackgroundTransfer
import Foundation
import FoundationNetworking
import StageControl
import StageTesting
import Synchronization
import Testing

/// Credentials that delegates answer challenges with.
@Suite(.server, .directory, .timeLimit(.minutes(5)))
struct CredentialTests: ForegroundSuite {
    private var challenge: Answer { .status(401).field("WWW-Authenticate", "Basic realm=\"r\"") }
    private let basic = "Basic dTpw"

    private func credential(isStored: Bool) -> URLCredential {
        URLCredential(user: "u", password: "p", persistence: isStored ? .forSession : .none)
    }

    @Test(arguments: [false, true], [false, true])
    func anAcceptedCredentialIsStoredAsItsPersistenceSays(
        isStored: Bool,
        isDownload: Bool
    ) async throws {
        server.answer("/a", with: challenge, .content([1]), challenge, .content([2]))
        let recorder = DataRecorder(credential: credential(isStored: isStored))
        let session = session(recorder)
        let first: BackgroundTransfer.URLSessionTask =
            isDownload
            ? session.downloadTask(with: try url("/a")) : session.dataTask(with: try url("/a"))
        first.resume()
        try await poll { recorder.lines.last == "completed: -" }
        // This task's delegate leaves challenges to the credential storage.
        let leaving = DataRecorder()
        let second = session.dataTask(with: try url("/a"))
        second.delegate = leaving
        second.resume()
        try await poll { leaving.lines.last == "completed: -" }
        #expect(leaving.data == Data(isStored ? [2] : []))
        #expect(
            server.requests.map { $0["authorization"] }
                == [nil, basic, nil] + (isStored ? [basic] : [])
        )
    }

    @Test func aCredentialIsStoredOnce() async throws {
        let recorder = DataRecorder(credential: credential(isStored: true))
        let session = session(recorder)
        for path in ["/a", "/b", "/c"] {
            server.answer(path, with: challenge, .content([1]))
            let task = session.dataTask(with: try url(path))
            task.resume()
            try await poll { task.state == .completed }
        }
        let stored = session.configuration.urlCredentialStorage?.allCredentials
        #expect(stored?.count == 1)
    }

    @Test func aBackgroundSessionStoresAnAcceptedCredential() async throws {
        let world = try ScriptedWorld()
        let configuration = world.configuration
        let storage = URLCredentialStorage()
        configuration.urlCredentialStorage = storage
        let session = BackgroundTransfer.URLSession(
            configuration: configuration,
            delegate: world.recorder,
            delegateQueue: nil
        )
        world.recorder.state.withLock { $0.credential = credential(isStored: true) }
        let task = session.downloadTask(with: try URL(text: "http://host/file"))
        task.resume()
        try await world.attach()
        world.emit(.challenged, task) { $0.challenge = "Basic realm=\"r\"" }
        try await poll { world.recorder.state.withLock { $0.challengeAnswer } != nil }
        world.recorder.state.withLock { $0.challengeAnswer }?()
        #expect(storage.allCredentials.isEmpty)
        world.emit(.completed, task) {
            $0.response = TransferResponse(url: "http://host/file", status: 200, headers: [])
        }
        try await poll { task.state == .completed }
        #expect(storage.allCredentials.values.first?["u"]?.password == "p")
        try await world.end(session)
    }
}
