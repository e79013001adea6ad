import Foundation
import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Conversations that must have the same result with the daemon and with the simulated daemon of tests.
@Suite(.directory, .daemon) struct RecordedCaseTests {
    /// The daemon that responds.
    enum Daemon: CaseIterable, Sendable {
        /// The program.
        case program
        /// The stand-in.
        case standIn
    }

    @Test(arguments: Daemon.allCases, RecordedCase.all)
    func theAnswersAreTheRecordedOnes(of daemon: Daemon, to recorded: RecordedCase) async throws {
        let process = try DaemonProcess.required()
        let standIn = TestDaemon(path: process.socket.string)
        switch daemon {
        case .program:
            try process.configure(#"{"settlingTime": 0}"#)
            try await process.start()
        case .standIn: try standIn.start()
        }
        defer { standIn.stop() }
        for step in recorded.steps {
            switch step {
            case .ask(let line, let body, let expected):
                let answer = try ControlExchange(line, body: body, at: process.socket.string)
                #expect(try expected.difference(from: answer) == nil, "\(line)")
            case .events(let after, let expected):
                let client = ControlClient(path: process.socket.string)
                let events = try client.openEvents(.events(of: "s", after: after))
                #expect(try lines(of: events, count: expected.count) == expected)
                // A second client is refused while the first one listens.
                let line = "GET /v1/sessions/s/events?after=0"
                let answer = try ControlExchange(line, at: process.socket.string)
                let isRefused = try conflict.difference(from: answer) == nil
                #expect(isRefused)
                events.close()
                try await poll {
                    try client.answer(to: .session("s")).isAttached == false
                }
            }
        }
    }

    /// The daemon's message for an invalid request names the member, and no type of Swift.
    @Test(arguments: [
        (#"{"tasks": [{"token": "t", "url": "u"}]}"#, "'tasks[0]': the member 'kind' is missing"),
        (
            #"{"tasks": [{"token": "t", "url": "u", "kind": "foo"}]}"#,
            "'tasks[0].kind': expected a known value, found 'foo'"
        ),
        (
            #"{"tasks": [{"token": "t", "url": "u", "kind": "download", "earliestBegin": "soon"}]}"#,
            "'tasks[0].earliestBegin': expected "
        ),
        (#"{"tasks": "all"}"#, "'tasks': expected an array, found 'all'"),
        ("{", "not JSON: line 1, column 2: "),
    ])
    func aRequestOfAnotherFormIsRefusedInPlainWords(body: String, words: String) async throws {
        let process = try DaemonProcess.required()
        try process.configure(#"{"settlingTime": 0}"#)
        try await process.start()
        let socket = process.socket.string
        _ = try ControlExchange("PUT /v1/sessions/s", body: "{}", at: socket)
        let answer = try ControlExchange("POST /v1/sessions/s/tasks", body: body, at: socket)
        #expect(answer.status == 400)
        let text = String(decoding: answer.body, as: UTF8.self)
        #expect(text.contains(#""message":"\#(words)"#), "\(text)")
    }

    private var conflict: Expected { Expected(409, #"{"code": "conflict"}"#) }

    /// The first events except heartbeats and progress, a line each.
    private func lines(of events: ControlEvents, count: Int) throws -> [String] {
        var lines: [String] = []
        while lines.count < count, let event = try events.nextEvent() {
            switch event.kind {
            case .attached:
                lines.append("attached \(event.sessionNumber == nil ? "-" : "to a number")")
            case .challenged, .completed, .failed, .cancelled:
                lines.append("\(event.kind) \(event.sequence ?? 0) of \(event.task ?? 0)")
            default: break
            }
        }
        return lines
    }
}
