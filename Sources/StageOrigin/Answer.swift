import Hummingbird
import StageSystem

/// What a request is answered with, before it becomes bytes on a connection.
struct Answer: Sendable {
    /// What follows the header fields.
    enum Content: Sendable {
        case none
        case bytes([UInt8])
        case file(SharedFile, FileIdentity, Range<Int64>)
    }

    var status: HTTPResponse.Status
    var fields: HTTPFields
    var content: Content

    /// The length of the content, which the answer to HEAD names without sending it.
    var contentLength: Int {
        switch content {
        case .none: 0
        case .bytes(let bytes): bytes.count
        case .file(_, _, let range): Int(range.count)
        }
    }

    /// A line of text that says the status.
    static func text(_ status: HTTPResponse.Status, _ fields: HTTPFields = [:]) -> Answer {
        var fields = fields
        fields[.contentType] = "text/plain; charset=utf-8"
        return Answer(
            status: status,
            fields: fields,
            content: .bytes(Array("\(status.code) \(status.reasonPhrase)\n".utf8))
        )
    }

    /// A page of HTML that must not run or load anything.
    static func page(_ html: String) -> Answer {
        let fields: HTTPFields = [
            .contentType: "text/html; charset=utf-8",
            .cacheControl: "no-cache",
            .contentSecurityPolicy: "default-src 'none'; style-src 'unsafe-inline'",
        ]
        return Answer(status: .ok, fields: fields, content: .bytes(Array(html.utf8)))
    }

    /// The part of a file that `selection` names.
    static func file(
        _ file: SharedFile,
        _ identity: FileIdentity,
        _ selection: RangeSelection,
        _ fields: HTTPFields
    ) -> Answer {
        var fields = fields
        let size = identity.size
        switch selection {
        case .whole:
            return Answer(status: .ok, fields: fields, content: .file(file, identity, 0..<size))
        case .part(let part):
            fields[.contentRange] = "bytes \(part.lowerBound)-\(part.upperBound - 1)/\(size)"
            return Answer(
                status: .partialContent,
                fields: fields,
                content: .file(file, identity, part)
            )
        case .unsatisfiable:
            return text(
                .rangeNotSatisfiable,
                [.acceptRanges: "bytes", .contentRange: "bytes */\(size)"]
            )
        }
    }
}
