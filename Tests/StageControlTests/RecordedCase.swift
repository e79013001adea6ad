import Foundation
import StageSystem
import StageTesting
import Testing

/// A conversation with a daemon that has no session yet.
struct RecordedCase: Sendable, CustomTestStringConvertible {
    /// A part of a conversation.
    enum Step: Sendable {
        /// A request with its body, and the expected response.
        case ask(String, String?, Expected)
        /// The events of the session `s` after one that is known.
        case events(after: Int64, [String])
    }

    let testDescription: String
    let steps: [Step]

    private init(_ name: String, _ steps: Step...) {
        testDescription = name
        self.steps = steps
    }

    private static func ask(_ line: String, _ expected: Expected) -> Step {
        .ask(line, nil, expected)
    }

    private static func ask(_ line: String, _ body: String, _ expected: Expected) -> Step {
        .ask(line, body, expected)
    }

    private static let session = ask(
        "PUT /v1/sessions/s",
        "{}",
        Expected(200, #"{"identifier": "s"}"#)
    )

    private static func create(_ ids: Int...) -> Step {
        let tasks = ids.map {
            #"{"token": "t\#($0)", "kind": "download", "url": "http://h/\#($0)", "isSuspended": true}"#
        }
        let body = #"{"tasks": [\#(tasks.joined(separator: ", "))]}"#
        return ask("POST /v1/sessions/s/tasks", body, Expected(200, #"{"ids": \#(ids)}"#))
    }

    /// Creates tasks with these tokens after the first one.
    private static func createTasks(_ tokens: String...) -> Step {
        let tasks = tokens.map {
            #"{"token": "\#($0)", "kind": "download", "url": "http://h/x", "isSuspended": true}"#
        }
        let body = #"{"tasks": [\#(tasks.joined(separator: ", "))]}"#
        let ids = Array(2...(tokens.count + 1))
        return ask("POST /v1/sessions/s/tasks", body, Expected(200, #"{"ids": \#(ids)}"#))
    }

    private static func cancel(_ id: Int) -> Step {
        let expected = Expected(200, #"{"id": \#(id), "state": "cancelled"}"#)
        return ask("PATCH /v1/tasks/\(id)", #"{"state": "cancelled"}"#, expected)
    }

    private static func acknowledge(_ sequence: Int, _ expected: Expected) -> Step {
        ask("POST /v1/sessions/s/acknowledge", #"{"sequence": \#(sequence)}"#, expected)
    }

    private static let missing = Expected(404, #"{"code": "notFound", "message": "*"}"#)
    private static let malformed = Expected(400, #"{"code": "malformed", "message": "*"}"#)
    private static let conflict = Expected(409, #"{"code": "conflict", "message": "*"}"#)
    private static let invalid = Expected(422, #"{"code": "invalid", "message": "*"}"#)

    /// All conversations.
    static let all = [
        RecordedCase(
            "the daemon says what it is",
            ask(
                "GET /v1/",
                Expected(
                    200,
                    """
                    {"version": "*", "process": "*", "user": \(UserIdentity.current.user), "unfinishedTasks": 0,
                     "conditions": "*", "staged": "*"}
                    """
                )
            )
        ),
        RecordedCase(
            "nothing is there before it is made",
            ask("GET /v1/sessions/s", missing),
            ask("DELETE /v1/sessions/s", missing),
            ask("GET /v1/sessions/s/tasks", missing),
            ask("GET /v1/sessions/s/events?after=0", missing),
            ask("POST /v1/sessions/s/tasks", #"{"tasks": []}"#, missing),
            acknowledge(0, missing),
            ask("POST /v1/sessions/s/extend", missing),
            ask("GET /v1/tasks/7", missing),
            ask("PATCH /v1/tasks/7", #"{"state": "cancelled"}"#, missing),
            ask("GET /v1/sessions", Expected(200, #"{"sessions": []}"#)),
            ask("GET /v1/tasks", Expected(200, #"{"tasks": []}"#)),
            ask("GET /v1/other", missing),
            ask("GET /v2/", missing)
        ),
        RecordedCase(
            "what is not JSON of the right kind is refused",
            ask("PUT /v1/sessions/s", "[]", malformed),
            session,
            ask("POST /v1/sessions/s/tasks", "{}", malformed),
            ask("POST /v1/sessions/s/acknowledge", "{", malformed),
            create(1),
            ask("PATCH /v1/tasks/1", #"{"state": "done"}"#, malformed),
            ask("PATCH /v1/tasks/x", #"{"state": "cancelled"}"#, malformed)
        ),
        RecordedCase(
            "a session is made, changed and removed",
            ask(
                "PUT /v1/sessions/s",
                #"{"isDiscretionary": true}"#,
                Expected(
                    200,
                    """
                    {"identifier": "s", "user": \(UserIdentity.current.user), "number": "*", "lastEvent": 0,
                     "configuration": {"isDiscretionary": true}, "acknowledgedEvent": 0,
                     "unfinishedTasks": 0, "isAttached": false, "launchPenalty": 0, "failedLaunches": 0}
                    """
                )
            ),
            ask(
                "PUT /v1/sessions/s",
                #"{"isDiscretionary": false}"#,
                Expected(200, #"{"configuration": {"isDiscretionary": false}}"#)
            ),
            create(1),
            ask("GET /v1/sessions/s", Expected(200, #"{"identifier": "s", "unfinishedTasks": 1}"#)),
            ask("GET /v1/sessions", Expected(200, #"{"sessions": [{"identifier": "s"}]}"#)),
            ask("POST /v1/sessions/s/extend", conflict),
            ask("DELETE /v1/sessions/s", Expected(204, nil)),
            ask("GET /v1/sessions/s", missing),
            ask("GET /v1/tasks/1", missing)
        ),
        RecordedCase(
            "an identifier is a component of the path",
            ask("PUT /v1/sessions/a%2Fb%20%3F", "{}", Expected(200, #"{"identifier": "a/b ?"}"#)),
            ask("GET /v1/sessions/a%2Fb%20%3F", Expected(200, #"{"identifier": "a/b ?"}"#)),
            ask("GET /v1/sessions/a%2Fb%20%3F/tasks", Expected(200, #"{"tasks": []}"#)),
            ask("GET /v1/sessions/a", missing)
        ),
        RecordedCase(
            "a request that is repeated makes no further task",
            session,
            create(1, 2),
            create(2, 1),
            create(2, 3),
            ask(
                "GET /v1/sessions/s/tasks",
                Expected(
                    200,
                    """
                    {"tasks": [
                        {"id": 1, "session": "s", "user": \(UserIdentity.current.user), "state": "suspended",
                         "request": {"token": "t1", "kind": "download", "url": "http://h/1"},
                         "pendingReasons": [{"reason": "pausedByClient"}], "created": "*", "bytesReceived": 0,
                         "bytesSent": 0, "attempts": 0},
                        {"id": 2, "request": {"token": "t2"}}, {"id": 3, "request": {"token": "t3"}}]}
                    """
                )
            ),
            ask("GET /v1/tasks/2", Expected(200, #"{"id": 2, "state": "suspended"}"#)),
            ask("GET /v1/tasks", Expected(200, #"{"tasks": [{"id": 1}, {"id": 2}, {"id": 3}]}"#))
        ),
        RecordedCase(
            "tasks are listed by the first part of their tokens",
            session,
            create(1),
            createTasks("a", "a/1", "a/b/2", "a0", "a-", "A/1", "a%2Fb/3", "b/a/4"),
            ask(
                "GET /v1/sessions/s/tasks?token=a",
                Expected(200, #"{"tasks": [{"id": 2}, {"id": 3}, {"id": 4}]}"#)
            ),
            ask("GET /v1/sessions/s/tasks?token=a%2Fb", Expected(200, #"{"tasks": [{"id": 4}]}"#)),
            ask(
                "GET /v1/sessions/s/tasks?headers=1&token=a%252Fb",
                Expected(200, #"{"tasks": [{"id": 8}]}"#)
            ),
            ask("GET /v1/sessions/s/tasks?token=c", Expected(200, #"{"tasks": []}"#)),
            ask("GET /v1/sessions/s/tasks?token=", Expected(200, #"{"tasks": []}"#))
        ),
        RecordedCase(
            "a task is changed until it has ended",
            session,
            create(1),
            ask(
                "PATCH /v1/tasks/1",
                #"{"priority": 0.75, "description": "words"}"#,
                Expected(
                    200,
                    """
                    {"id": 1, "state": "suspended", "request": {"priority": 0.75, "description": "words"}}
                    """
                )
            ),
            ask("PATCH /v1/tasks/1", #"{"rejectsChallenge": true}"#, conflict),
            ask("PATCH /v1/tasks/1", #"{"authorization": "Basic eA=="}"#, conflict),
            ask("PATCH /v1/tasks/1", #"{"stagingEnd": {}}"#, conflict),
            cancel(1),
            cancel(1),
            ask("PATCH /v1/tasks/1", #"{"state": "suspended"}"#, conflict),
            ask("PATCH /v1/tasks/1", #"{"description": "later"}"#, conflict)
        ),
        RecordedCase(
            "an end is told until it is acknowledged",
            session,
            create(1, 2, 3),
            cancel(2),
            cancel(1),
            ask(
                "GET /v1/sessions/s",
                Expected(200, #"{"lastEvent": 2, "acknowledgedEvent": 0, "unfinishedTasks": 1}"#)
            ),
            ask(
                "GET /v1/sessions/s/tasks",
                Expected(
                    200,
                    """
                    {"tasks": [{"id": 1, "state": "cancelled"}, {"id": 2, "state": "cancelled"},
                        {"id": 3, "state": "suspended"}]}
                    """
                )
            ),
            .events(
                after: 0,
                ["attached to a number", "cancelled 1 of 2", "cancelled 2 of 1"]
            ),
            .events(after: 1, ["attached to a number", "cancelled 2 of 1"]),
            acknowledge(3, invalid),
            acknowledge(1, Expected(204, nil)),
            acknowledge(0, Expected(204, nil)),
            ask("GET /v1/sessions/s", Expected(200, #"{"lastEvent": 2, "acknowledgedEvent": 1}"#)),
            ask("GET /v1/sessions/s/tasks", Expected(200, #"{"tasks": [{"id": 1}, {"id": 3}]}"#)),
            ask("GET /v1/tasks/2", missing),
            .events(after: 0, ["attached to a number", "cancelled 2 of 1"])
        ),
    ]
}

/// An expected response.
struct Expected: Sendable {
    private let status: Int
    /// The expected members of the body, as JSON: `"*"` matches any value; `nil` for a response without a body.
    private let body: String?

    init(_ status: Int, _ body: String?) {
        self.status = status
        self.body = body
    }

    /// The first difference of a response; `nil` if there is none.
    func difference(from answer: ControlExchange) throws -> String? {
        let words = String(decoding: answer.body, as: UTF8.self)
        guard answer.status == status else {
            return "expected \(status), found \(answer.status): \(words)"
        }
        guard let body else {
            return answer.body.isEmpty ? nil : "expected no body, found \(words)"
        }
        guard answer.fields["content-type"] == "application/json" else {
            return "content type: \(answer.fields["content-type"] ?? "none")"
        }
        let wanted = try JSONSerialization.jsonObject(with: Data(body.utf8))
        let found = try JSONSerialization.jsonObject(with: answer.body)
        return Self.matches(wanted, found) ? nil : "expected \(body), found \(words)"
    }

    private static func matches(_ wanted: Any, _ found: Any?) -> Bool {
        guard let found else { return false }
        switch wanted {
        case "*" as String: return true
        case let wanted as [String: Any]:
            guard let found = found as? [String: Any] else { return false }
            return wanted.allSatisfy { matches($0.value, found[$0.key]) }
        case let wanted as [Any]:
            guard let found = found as? [Any], found.count == wanted.count else { return false }
            return zip(wanted, found).allSatisfy { matches($0, $1) }
        default: return "\(wanted)" == "\(found)"
        }
    }
}
