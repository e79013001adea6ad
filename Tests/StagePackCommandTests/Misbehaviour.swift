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
    /// The delta set of an update, for `fetch`; missing content comes from bundles.
    case delta
    /// The patch of an update, for `fetch`; if the server has none, or another one, the content comes from bundles.
    case patch

    static let documents: [ServedResource] = [.manifest, .archive]
    static let wholes: [ServedResource] = [.manifest, .archive, .index, .bundle]
}

/// The content of a resource, as a correct server has it.
struct Served: Sendable {
    let resource: ServedResource
    /// The path on the server.
    let path: String
    let content: [UInt8]
    /// Returns the server's URL of a path.
    let url: @Sendable (String) -> String

    /// A correct response with the content, with further header lines.
    func correct(_ lines: String...) -> [UInt8] {
        let length = "Content-Length: \(content.count)"
        return Array(head("200 OK", [length] + lines).utf8) + content
    }

    /// The content in chunks of this size, without the last, empty chunk.
    func chunks(of size: Int, extension text: String = "") -> [UInt8] {
        stride(from: 0, to: content.count, by: size).flatMap { start in
            let piece = content[start..<min(start + size, content.count)]
            let line = "\(String(piece.count, radix: 16))\(text)\r\n"
            return Array(line.utf8) + piece + Array("\r\n".utf8)
        }
    }
}

/// The head of a response.
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
    /// The response is missing or incomplete.
    case request
    /// The response is a refusal, or not acceptable.
    case refused
    /// The content differs.
    case wrong
    /// The response is a login page of another server.
    case portal
    /// The deadline passed.
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
    /// The resources with which it is tested.
    var resources = ServedResource.documents
    /// The outcome, unless ``exceptions`` has one for the resource.
    let outcome: RunOutcome
    var exceptions: [ServedResource: RunOutcome] = [:]
    /// Further options of the command.
    var options = ["--attempts", "1"]
    /// Returns the responses to the requests for the resource, in order; the last one repeats.
    let answers: @Sendable (Served) -> [Answer]

    /// A server with these responses.
    static func answers(
        _ name: String,
        _ outcome: RunOutcome,
        _ answers: @escaping @Sendable (Served) -> [Answer]
    ) -> Misbehaviour {
        Misbehaviour(name: name, outcome: outcome, answers: answers)
    }

    /// A server whose responses a script writes.
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

    /// The same misbehaviour, tested with other resources.
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

    /// The rows of the catalogue for this misbehaviour.
    var rows: [MisbehaviourRow] {
        resources.map { MisbehaviourRow(misbehaviour: self, resource: $0) }
    }
}

/// A misbehaviour tested with one resource.
struct MisbehaviourRow: Sendable, CustomTestStringConvertible {
    let misbehaviour: Misbehaviour
    let resource: ServedResource

    var testDescription: String { "\(resource): \(misbehaviour.name)" }

    /// The expected result of the run.
    var outcome: RunOutcome {
        if let exception = misbehaviour.exceptions[resource] { return exception }
        return switch (resource, misbehaviour.outcome) {
        // A faulty delta set or patch is never an error.
        case (.delta, _), (.patch, _): .right
        case (_, let outcome): outcome
        }
    }
}
