import StageTesting
import StagingService
import Testing

/// A resource of a publisher's server, and the command that asks for it.
enum ServedResource: String, CaseIterable {
    /// The manifest, for `prefetch`.
    case manifest
    /// The archive of a pack, for `prefetch`.
    case archive
    /// The index of an indexed pack, for `fetch`.
    case index
    /// A whole bundle of an indexed pack, for `fetch`.
    case bundle
    /// A part of a bundle, for `load --file`.
    case range
    /// The delta set of an update, for `fetch`; what it does not give comes from bundles.
    case delta
    /// The patch of an update, for `fetch`; if the server has none, or another one, the content comes from bundles.
    case patch

    static let documents: [ServedResource] = [.manifest, .archive]
    static let wholes: [ServedResource] = [.manifest, .archive, .index, .bundle]
}

/// The content of a resource, as a server that behaves has it.
struct Served: Sendable {
    let resource: ServedResource
    /// The path on the server.
    let path: String
    let content: [UInt8]
    /// Returns the server's URL of a path.
    let url: @Sendable (String) -> String

    /// A correct answer with the content, with further header lines.
    func correct(_ lines: String...) -> [UInt8] {
        let length = "Content-Length: \(content.count)"
        return Array(head("200 OK", [length] + lines).utf8) + content
    }

    /// The content in chunks of these sizes, without the last, empty one.
    func chunks(of size: Int, extension text: String = "") -> [UInt8] {
        stride(from: 0, to: content.count, by: size).flatMap { start in
            let piece = content[start..<min(start + size, content.count)]
            let line = "\(String(piece.count, radix: 16))\(text)\r\n"
            return Array(line.utf8) + piece + Array("\r\n".utf8)
        }
    }
}

/// The head of an answer.
func head(_ status: String, _ lines: [String] = []) -> String {
    "HTTP/1.1 \(status)\r\n\(lines.map { "\($0)\r\n" }.joined())\r\n"
}

/// The result of a run.
enum RunOutcome: Equatable {
    /// The content is correct despite the server.
    case right
    /// The run fails with the status for this class of failures, and standard error contains the phrase.
    case fails(FailureClass, String)
}

/// A class of failures, which has an exit status for each resource.
enum FailureClass {
    /// There was no answer, or not all of it.
    case request
    /// The answer is a refusal, or not acceptable.
    case refused
    /// The content differs.
    case wrong
    /// The answer is another's page.
    case portal
    /// The time was up.
    case late

    /// The exit status of a run for a resource.
    func status(for resource: ServedResource) -> Int32 {
        switch self {
        case .request: resource == .manifest ? 10 : 20
        case .refused: resource == .manifest ? 10 : 21
        case .wrong: resource == .manifest ? 11 : 22
        case .portal: 23
        case .late: 75
        }
    }

    /// The kind of failure that the history of a run for an archive names.
    var kind: StagingFailure.Kind {
        switch self {
        case .request: .transferFailed
        case .refused: .transferRefused
        case .wrong: .digestMismatch
        case .portal: .captivePortal
        case .late: .interrupted
        }
    }
}

/// A misbehaviour of a server, and the expected outcome of the program.
struct Misbehaviour: Sendable {
    let name: String
    /// The resources that it is tried on.
    var resources = ServedResource.documents
    /// The outcome, where ``exceptions`` has none for the resource.
    let outcome: RunOutcome
    var exceptions: [ServedResource: RunOutcome] = [:]
    /// Further options of the command.
    var options = ["--attempts", "1"]
    /// Returns the answers to the requests for the resource, in order; the last repeats.
    let answers: @Sendable (Served) -> [Answer]

    /// A server that answers like this.
    static func answers(
        _ name: String,
        _ outcome: RunOutcome,
        _ answers: @escaping @Sendable (Served) -> [Answer]
    ) -> Misbehaviour {
        Misbehaviour(name: name, outcome: outcome, answers: answers)
    }

    /// A server whose answers a script writes.
    static func script(
        _ name: String,
        _ outcome: RunOutcome,
        _ script: @escaping @Sendable (Wire, Served) -> Void
    ) -> Misbehaviour {
        answers(name, outcome) { served in [.script { script($0, served) }] }
    }

    /// A server that sends these bytes and closes the connection.
    static func bytes(
        _ name: String,
        _ outcome: RunOutcome,
        _ bytes: @escaping @Sendable (Served) -> [UInt8]
    ) -> Misbehaviour {
        script(name, outcome) { wire, served in
            wire.send(bytes(served))
            wire.end()
        }
    }

    /// A server that sends this head, then the content, and closes the connection.
    static func head(
        _ name: String,
        _ outcome: RunOutcome,
        _ status: String,
        _ lines: String...
    ) -> Misbehaviour {
        bytes(name, outcome) { served in
            let lines = lines.map { $0.replacing("LENGTH", with: "\(served.content.count)") }
            return Array(StagePackCommandTests.head(status, lines).utf8) + served.content
        }
    }

    /// The misbehaviour tried on other resources.
    func on(_ resources: [ServedResource]) -> Misbehaviour {
        var copy = self
        copy.resources = resources
        return copy
    }

    /// The misbehaviour with another outcome for a resource.
    func except(_ resource: ServedResource, _ outcome: RunOutcome) -> Misbehaviour {
        var copy = self
        copy.exceptions[resource] = outcome
        return copy
    }

    /// The misbehaviour, for a command with other options.
    func with(_ options: String...) -> Misbehaviour {
        var copy = self
        copy.options = options
        return copy
    }

    /// The rows of the catalogue that it stands for.
    var rows: [MisbehaviourRow] {
        resources.map { MisbehaviourRow(misbehaviour: self, resource: $0) }
    }
}

/// A misbehaviour tried on one resource.
struct MisbehaviourRow: Sendable, CustomTestStringConvertible {
    let misbehaviour: Misbehaviour
    let resource: ServedResource

    var testDescription: String { "\(resource): \(misbehaviour.name)" }

    /// The expected result of the run.
    var outcome: RunOutcome {
        if let exception = misbehaviour.exceptions[resource] { return exception }
        return switch (resource, misbehaviour.outcome) {
        // Nothing that is wrong with a delta set or a patch is an error.
        case (.delta, _), (.patch, _): .right
        case (_, let outcome): outcome
        }
    }
}
