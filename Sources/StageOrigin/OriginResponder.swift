import FoundationEssentials
import Hummingbird
import Logging
import StageModel
import StageSystem
import Synchronization

/// Serves requests from a directory tree.
final class OriginResponder: Sendable {
    private let tree: ServedTree
    private let configuration: OriginConfiguration
    private let digests = DigestCache()
    private let logger: Logger
    /// Paths whose first body was cut off.
    private let dropped = Mutex<Set<String>>([])

    init(tree: ServedTree, configuration: OriginConfiguration, logger: Logger) {
        self.tree = tree
        self.configuration = configuration
        self.logger = logger
    }

    /// Returns the response to a request; the access is reported after the response was sent.
    func respond(to request: Request) async -> Response {
        let answer: Answer
        do throws(FileError) {
            answer = try await self.answer(to: request)
        } catch {
            logger.error(
                "a file could not be read",
                metadata: ["origin.reason": "\(error)"]
            )
            answer = .text(.internalServerError)
        }
        return response(with: answer, to: request)
    }

    private func answer(to request: Request) async throws(FileError) -> Answer {
        guard request.method == .get || request.method == .head else {
            return .text(.methodNotAllowed, fields: [.allow: "GET, HEAD"])
        }
        guard let path = ServedPath(request.uri.path), let entry = try tree.entry(at: path) else {
            return .text(.notFound)
        }
        switch entry {
        case .file(let file):
            return try await answer(to: request, with: file, name: path.names.last ?? "")
        case .directory where !path.hasTrailingSlash:
            let name = path.names.last ?? ""
            return .text(.movedPermanently, fields: [.location: "./\(name.percentEncoded())/"])
        case .directory(let directory):
            return .page(try tree.index(of: directory, at: path).html)
        }
    }

    private func answer(
        to request: Request,
        with file: SharedFile,
        name: String
    ) async throws(FileError) -> Answer {
        guard let (digest, identity) = try await digests.digest(of: file) else {
            return .text(.serviceUnavailable, fields: [.retryAfter: "1"])
        }
        let validators = Validators(
            tag: EntityTag(opaque: digest.description),
            modified: identity.modifiedDate
        )
        var fields: HTTPFields = [
            .acceptRanges: "bytes",
            .cacheControl: "no-cache",
            .eTag: validators.tag.description,
            .lastModified: validators.modified.description,
        ]
        let now = HTTPDate(seconds: Int64(Date.now.timeIntervalSince1970))
        switch Preconditions(request.headers).outcome(for: validators, at: now) {
        case .failed:
            return .text(.preconditionFailed)
        case .notModified:
            return Answer(status: .notModified, fields: fields, content: .none)
        case .proceed(let honorsRange):
            fields[.contentType] = MediaType.of(fileNamed: name)
            // Ranges are defined for GET only (RFC 9110 §14.2).
            let range = honorsRange && request.method == .get ? request.headers[.range] : nil
            return .file(
                file,
                identity: identity,
                selection: RangeSelection(range, size: identity.size),
                fields: fields
            )
        }
    }

    private func response(with answer: Answer, to request: Request) -> Response {
        var fields = answer.fields
        if answer.status != .notModified {
            fields[.contentLength] = String(answer.contentLength)
        }
        let body = request.method == .head ? Self.noBody : self.body(of: answer, to: request)
        let record = AccessRecord(
            method: request.method.rawValue,
            path: request.head.path ?? "",
            status: answer.status.code,
            bytes: .zero
        )
        let report = configuration.onAccess
        return Response(
            status: answer.status,
            headers: fields,
            body: ResponseBody { writer in
                var sent = 0
                defer {
                    var record = record
                    record.bytes = ByteCount(sent)
                    report?(record)
                }
                try await body(&writer, &sent)
                try await writer.finish(nil)
            }
        )
    }

    /// Closure that writes a body and counts its bytes; the client may disconnect at any time.
    private typealias BodyWriter =
        @concurrent @Sendable (inout any ResponseBodyWriter, inout Int) async throws -> Void

    private static let noBody: BodyWriter = { _, _ in }

    private func body(of answer: Answer, to request: Request) -> BodyWriter {
        switch answer.content {
        case .none:
            return Self.noBody
        case .bytes(let bytes):
            return { writer, sent in
                try await writer.write(ByteBuffer(bytes: bytes))
                sent += bytes.count
            }
        case .file(let shared, let identity, let range):
            let body = FileBody(
                shared: shared,
                identity: identity,
                range: range,
                bytesPerSecond: configuration.bytesPerSecond,
                dropAfter: dropLimit(for: request.uri.path)
            )
            return { writer, sent in try await body.write(to: &writer, sent: &sent) }
        }
    }

    private func dropLimit(for path: String) -> ByteCount? {
        guard let limit = configuration.dropAfter else { return nil }
        return dropped.withLock { $0.insert(path).inserted } ? limit : nil
    }
}

extension Preconditions {
    init(_ fields: HTTPFields) {
        self.init(
            ifMatch: fields[.ifMatch],
            ifNoneMatch: fields[.ifNoneMatch],
            ifModifiedSince: fields[.ifModifiedSince],
            ifUnmodifiedSince: fields[.ifUnmodifiedSince],
            ifRange: fields[.ifRange]
        )
    }
}
