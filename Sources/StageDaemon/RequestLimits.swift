import FoundationEssentials
import StageControl
import StageModel
import StageTransfer

/// Limits of all members of client requests.
///
/// Tasks are checked by the same rules on creation and after each change. The journal limits their total size
/// (``DaemonConfiguration/journalPerUser``).
enum RequestLimits {
    /// Mirrors of one task.
    static let mirrors = 64
    /// Bytes of a URL.
    static let url = 8192
    /// Header fields of a session or task: their number, and their bytes in total.
    static let fields = (count: 100, bytes: 1 << 16)
    /// Bytes of one header field.
    static let field = 1 << 14
    /// Bytes of a task's token, or of a handler's version.
    static let name = 256
    /// Bytes of a session's identifier.
    static let identifier = 255
    /// Bytes of a description.
    static let description = 4096
    /// Bytes of a path.
    static let path = 4095
    /// Bytes of a token issued by the daemon.
    static let token = 64
    /// Arguments of a handler, and variables of its environment: their number, and their bytes in total.
    static let strings = (count: 256, bytes: 1 << 15)
    /// Upper bound of sizes, larger than any disk, so that sums do not overflow.
    static let size: Int64 = 1 << 50
    /// Upper bound of timeouts in seconds, a century, so that date arithmetic stays exact.
    static let timeout = 100.0 * 366 * 86_400
    /// Connections to one host.
    static let connections = 1 << 16
    /// Maximum number of sessions of one user.
    static let sessionsPerUser = 256
    /// Maximum number of sessions of all users, which are kept in memory with their header fields.
    static let sessions = 4096

    /// Checks the configuration of a session.
    static func check(
        _ wanted: SessionConfiguration,
        identifier: String
    ) throws(ControlRefusal) {
        try check(identifier, bytes: 1...Self.identifier, as: "a session's identifier")
        try checkShown(identifier, as: "a session's identifier")
        try check(headers: wanted.headers)
        if let group = wanted.group { try check(group, bytes: 1...name, as: "'group'") }
        guard [nil, "1.2", "1.3"].contains(wanted.minimumTLSVersion) else {
            throw ControlRefusal(
                .invalid,
                message: "expected '1.2' or '1.3' as 'minimumTLSVersion'"
            )
        }
        guard [nil, "plain", "resumable", "tus"].contains(wanted.uploadProtocol) else {
            throw ControlRefusal(
                .invalid,
                message: "expected 'plain', 'resumable' or 'tus' as 'uploadProtocol'"
            )
        }
        let timeouts = [wanted.requestTimeout, wanted.resourceTimeout]
        guard timeouts.allSatisfy({ $0 > 0 && $0 <= timeout }) else {
            throw ControlRefusal(
                .invalid,
                message: "expected timeouts of more than 0 seconds, and of a century at most"
            )
        }
        guard (1...connections).contains(wanted.maximumConnectionsPerHost) else {
            throw ControlRefusal(
                .invalid,
                message: "expected 1 to \(connections.quantity(of: "connection")) per host"
            )
        }
        if let handler = wanted.handler { try check(handler) }
    }

    private static func check(_ handler: LaunchHandler) throws(ControlRefusal) {
        guard handler.command.first?.hasPrefix("/") ?? false else {
            throw ControlRefusal(
                .invalid,
                message: "expected the absolute path of a handler's program"
            )
        }
        try check(handler.command, as: "a handler's command")
        if let directory = handler.directory {
            try check(directory, bytes: 1...path, as: "a handler's directory")
            guard directory.hasPrefix("/") else {
                throw ControlRefusal(
                    .invalid,
                    message: "expected the absolute path of a handler's directory"
                )
            }
        }
        if let version = handler.version {
            try check(version, bytes: 0...name, as: "a handler's version")
        }
        guard let environment = handler.environment else { return }
        try check(environment.map { "\($0.key)=\($0.value)" }, as: "a handler's environment")
        guard environment.keys.allSatisfy({ !$0.isEmpty && !$0.utf8.contains(UInt8(ascii: "=")) })
        else {
            throw ControlRefusal(.invalid, message: "expected names of variables without '='")
        }
        guard environment["HOME"]?.hasPrefix("/") ?? true else {
            throw ControlRefusal(.invalid, message: "expected an absolute path as 'HOME'")
        }
    }

    /// Checks a list of strings for a program; `what` names it in messages.
    private static func check(_ list: [String], as what: String) throws(ControlRefusal) {
        let bytes = list.reduce(0) { $0 + $1.utf8.count }
        guard list.count <= strings.count, bytes <= strings.bytes,
            list.allSatisfy({ !$0.utf8.contains(0) })
        else {
            throw ControlRefusal(
                .invalid,
                message:
                    "\(what) must have at most \(strings.count.quantity(of: "string")) with \(strings.bytes.quantity(of: "byte")) in all, and no zero bytes"
            )
        }
    }

    /// Checks a request to create tasks, except the tasks themselves.
    static func check(_ message: NewTasks) throws(ControlRefusal) {
        guard message.tasks.count <= ControlFormat.taskLimit else {
            throw ControlRefusal(
                .tooLarge,
                message:
                    "expected at most \(ControlFormat.taskLimit) tasks in a request: send them in several"
            )
        }
        try check(launch: message.launch)
    }

    /// Checks a request to change tasks, except the changes themselves.
    static func check(_ message: TaskChanges) throws(ControlRefusal) {
        guard message.changes.count <= ControlFormat.taskLimit else {
            throw ControlRefusal(
                .tooLarge,
                message:
                    "expected at most \(ControlFormat.taskLimit) tasks in a request: send them in several"
            )
        }
        guard Set(message.changes.map(\.task)).count == message.changes.count else {
            throw ControlRefusal(.invalid, message: "expected one change of each task")
        }
    }

    /// Checks a new or changed task.
    static func check(
        _ request: TransferRequest,
        in session: SessionConfiguration
    ) throws(ControlRefusal) {
        try check(request.token, bytes: 1...name, as: "a task's token")
        do throws(ControlRefusal) {
            if request.kind == .staging {
                try checkStaging(request)
            } else {
                try checkAddresses(request)
                try checkDomains(request)
            }
            try checkTexts(request)
            try checkNumbers(request)
            try check(headers: request.headers ?? [:])
            switch request.kind {
            case .upload:
                guard let file = request.file, file.hasPrefix("/") else {
                    throw ControlRefusal(
                        .invalid,
                        message: "expected the absolute path of a file to upload"
                    )
                }
                try check(file, bytes: 1...path, as: "'file'")
            case .download, .staging:
                guard request.file == nil else {
                    throw ControlRefusal(.invalid, message: "only an upload has a file to upload")
                }
            }
            if let parts = request.parts { try check(parts, of: request) }
            guard request.kind == .staging || request.staging == nil else {
                throw ControlRefusal(.invalid, message: "only a staging has a 'staging'")
            }
        } catch {
            throw ControlRefusal(error.code, message: "task '\(request.token)': \(error.message)")
        }
    }

    private static func checkAddresses(_ request: TransferRequest) throws(ControlRefusal) {
        let mirrors = request.mirrors ?? []
        guard mirrors.count <= Self.mirrors else {
            throw ControlRefusal(.invalid, message: "expected at most \(Self.mirrors) mirrors")
        }
        guard mirrors.isEmpty || request.sha256 != nil else {
            throw ControlRefusal(
                .invalid,
                message: "mirrors need a 'sha256', by which their content is known to be the same"
            )
        }
        for url in [request.url] + mirrors { _ = try origin(of: url) }
    }

    /// Returns the origin of an absolute http or https URL.
    static func origin(of url: String) throws(ControlRefusal) -> URLOrigin {
        guard url.utf8.count <= Self.url, url.utf8.allSatisfy({ (0x21...0x7E).contains($0) })
        else {
            throw ControlRefusal(
                .invalid,
                message:
                    "expected an absolute http or https URL, found '\(url.withoutUser.forDisplay(atMost: 256))'"
            )
        }
        do throws(ValueError) {
            return try URLReference(url).checkOrigin()
        } catch {
            throw ControlRefusal(.invalid, message: "\(error)")
        }
    }

    /// Checks the allowed domains, and that they include the task's own URLs.
    private static func checkDomains(
        _ request: TransferRequest
    ) throws(ControlRefusal) {
        guard let domains = request.allowedDomains else { return }
        let limit = ManifestLimits.allowedDomains
        guard domains.count <= limit, domains.allSatisfy({ (1...255).contains($0.utf8.count) })
        else {
            throw ControlRefusal(
                .invalid,
                message: "expected at most \(limit) 'allowedDomains' of 1 to 255 bytes"
            )
        }
        let allowed = AllowedDomains(domains)
        for url in [request.url] + (request.mirrors ?? []) {
            guard allowed.contains(try origin(of: url).host) else {
                throw ControlRefusal(.invalid, message: "a URL is on none of the 'allowedDomains'")
            }
        }
    }

    private static func checkTexts(_ request: TransferRequest) throws(ControlRefusal) {
        if let digest = request.sha256, (try? Digest(hexadecimal: digest)) == nil {
            throw ControlRefusal(.invalid, message: "expected 64 hexadecimal digits as 'sha256'")
        }
        if let text = request.description {
            try check(text, bytes: 0...description, as: "'description'")
        }
        if let token = request.resumeToken {
            try check(token, bytes: 0...Self.token, as: "'resumeToken'")
        }
        if let method = request.method {
            let isToken = method.utf8.allSatisfy { (0x41...0x5A).contains($0) }
            guard isToken, (1...32).contains(method.utf8.count) else {
                throw ControlRefusal(
                    .invalid,
                    message: "expected a method of HTTP, found '\(method.prefix(64))'"
                )
            }
        }
    }

    private static func checkNumbers(_ request: TransferRequest) throws(ControlRefusal) {
        for bytes in [request.size, request.expectedToReceive, request.expectedToSend] {
            guard bytes?.rawValue ?? 0 <= size else {
                throw ControlRefusal(
                    .invalid,
                    message: "expected sizes of at most \(size.quantity(of: "byte"))"
                )
            }
        }
        if let priority = request.priority { try check(priority: priority) }
        // Dates are compared and stored as seconds.
        if let date = request.earliestBegin, abs(date.timeIntervalSince1970) > 100 * timeout {
            throw ControlRefusal(
                .invalid,
                message: "expected an 'earliestBegin' within 10,000 years of 1970"
            )
        }
    }

    /// Checks a priority.
    static func check(priority: Double) throws(ControlRefusal) {
        guard (0...1).contains(priority) else {
            throw ControlRefusal(
                .invalid,
                message: "expected a priority from 0 to 1, found \(priority)"
            )
        }
    }

    /// Checks an acknowledgement, but not whether its events exist.
    static func check(_ message: Acknowledgement) throws(ControlRefusal) {
        guard message.sequence >= 0 else {
            throw ControlRefusal(.invalid, message: "expected no negative 'sequence'")
        }
        try check(launch: message.launch)
    }

    /// Checks the first part of the tokens by which tasks are listed.
    static func check(listedToken token: String?) throws(ControlRefusal) {
        if let token { try check(token, bytes: 0...name, as: "'token'") }
    }

    /// Checks the token of a launch.
    static func check(launch: String?) throws(ControlRefusal) {
        if let launch { try check(launch, bytes: 0...token, as: "'launch'") }
    }

    /// Parses the query parameter `after`, a sequence number.
    static func sequence(_ text: String?) throws(ControlRefusal) -> Int64? {
        guard let text else { return nil }
        guard let number = Int64(text), number >= 0 else {
            throw ControlRefusal(.malformed, message: "expected the number of an event as 'after'")
        }
        return number
    }

    private static func check(headers: [String: String]) throws(ControlRefusal) {
        let bytes = headers.reduce(0) { $0 + $1.key.utf8.count + $1.value.utf8.count }
        guard headers.count <= fields.count, bytes <= fields.bytes else {
            throw ControlRefusal(
                .invalid,
                message:
                    "expected at most \(fields.count) header fields with \(fields.bytes.quantity(of: "byte"))"
            )
        }
        for (name, value) in headers { try check(header: name, value: value) }
    }

    /// Checks that a header field can be sent unchanged.
    static func check(header name: String, value: String) throws(ControlRefusal) {
        guard name.isHTTPToken, value.isHTTPFieldValue,
            name.utf8.count + value.utf8.count <= field
        else {
            throw ControlRefusal(
                .invalid,
                message: "the header field '\(name.prefix(64))' cannot be sent"
            )
        }
        // A client that sends a listed task back has no credentials, and would send this text to a server.
        guard value != TransferTask.hiddenValue else {
            throw ControlRefusal(
                .invalid,
                message:
                    "the header field '\(name)' has the placeholder for hidden values, '\(value)': send its own value"
            )
        }
        let reserved = [
            "range", "if-range", "accept-encoding", "content-length", "transfer-encoding", "host",
        ]
        guard !reserved.contains(name.lowercased()) else {
            throw ControlRefusal(
                .invalid,
                message: "the header field '\(name)' is the daemon's to set"
            )
        }
    }

    /// Checks that a text has an allowed length in bytes and contains no NUL; `what` names it in messages.
    static func check(
        _ text: String,
        bytes: ClosedRange<Int>,
        as what: String
    ) throws(ControlRefusal) {
        guard bytes.contains(text.utf8.count) else {
            throw ControlRefusal(
                .invalid,
                message:
                    "\(what) must have \(bytes.lowerBound) to \(bytes.upperBound.quantity(of: "byte")), found \(text.utf8.count)"
            )
        }
        guard !text.utf8.contains(0) else {
            throw ControlRefusal(.invalid, message: "\(what) must not contain a zero byte")
        }
    }

    /// Checks that a text, which commands print on one line, has no control characters; `what` names it in messages.
    static func checkShown(_ text: String, as what: String) throws(ControlRefusal) {
        guard !text.unicodeScalars.contains(where: \.isUnsafeForDisplay) else {
            throw ControlRefusal(
                .invalid,
                message:
                    "\(what) must not contain control or bidirectional characters, found '\(text.forDisplay(atMost: 60))'"
            )
        }
    }
}
