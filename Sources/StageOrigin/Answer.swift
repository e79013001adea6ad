import Hummingbird
import StageSystem

/// Response to a request, before it is written.
struct Answer: Sendable {
    /// Content of a response.
    enum Content: Sendable {
        case none
        case bytes([UInt8])
        case file(SharedFile, FileIdentity, Range<Int64>)
    }

    var status: HTTPResponse.Status
    var fields: HTTPFields
    var content: Content

    /// Length of the content, which the response to HEAD states without the content.
    var contentLength: Int {
        switch content {
        case .none: 0
        case .bytes(let bytes): bytes.count
        case .file(_, _, let range): Int(range.count)
        }
    }

    /// Returns a text response that consists of the status.
    static func text(_ status: HTTPResponse.Status, fields: HTTPFields = [:]) -> Answer {
        var fields = fields
        fields[.contentType] = "text/plain; charset=utf-8"
        return Answer(
            status: status,
            fields: fields,
            content: .bytes(Array("\(status.code) \(status.reasonPhrase)\n".utf8))
        )
    }

    /// Returns an HTML page that may not run scripts or load resources.
    static func page(_ html: String) -> Answer {
        let fields: HTTPFields = [
            .contentType: "text/html; charset=utf-8",
            .cacheControl: "no-cache",
            .contentSecurityPolicy: "default-src 'none'; style-src 'unsafe-inline'",
        ]
        return Answer(status: .ok, fields: fields, content: .bytes(Array(html.utf8)))
    }

    /// Returns the part of a file that `selection` selects.
    static func file(
        _ file: SharedFile,
        identity: FileIdentity,
        selection: RangeSelection,
        fields: HTTPFields
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
                fields: [.acceptRanges: "bytes", .contentRange: "bytes */\(size)"]
            )
        }
    }
}
