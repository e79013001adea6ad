import FoundationEssentials
import StageControl
import StageModel
import StageTransfer

extension NewTask {
    /// Checks a request, and makes a task of it.
    ///
    /// - Throws: ``ControlRefusal`` with ``ControlRefusal/Code/invalid`` for what cannot be asked of a
    ///   server.
    init(
        _ request: TransferRequest,
        _ session: SessionConfiguration,
        at now: Date
    ) throws(ControlRefusal) {
        func invalid(_ text: String) -> ControlRefusal {
            ControlRefusal(.invalid, "task '\(request.token)': \(text)")
        }
        guard let host = TransferAddress(request.url)?.authority else {
            throw invalid(
                "expected an absolute http or https URL, found '\(request.url.prefix(256))'"
            )
        }
        try Self.check(request, session, invalid)
        self.request = request
        self.host = host
        priority = try Self.priority(request.priority ?? 0.5)
        needs = Needs(session, request)
        blocks = request.isSuspended ?? false ? .client : []
        earliest = request.earliestBegin.flatMap { $0 > now ? $0 : nil }
        deadline = now + min(max(session.resourceTimeout, 0), 10 * 365 * 86_400)
    }

    /// More than any disk has: sums of sizes stay numbers.
    private static let sizeLimit: Int64 = 1 << 50

    private static func check(
        _ request: TransferRequest,
        _ session: SessionConfiguration,
        _ invalid: (String) -> ControlRefusal
    ) throws(ControlRefusal) {
        guard !request.token.isEmpty, request.token.utf8.count <= 256 else {
            throw ControlRefusal(.invalid, "a task's token has 1 to 256 bytes")
        }
        guard request.mirrors?.isEmpty ?? true || request.sha256 != nil else {
            throw invalid("mirrors need a 'sha256', by which their content is known to be the same")
        }
        for mirror in request.mirrors ?? [] where TransferAddress(mirror) == nil {
            throw invalid("expected an absolute http or https URL, found '\(mirror.prefix(256))'")
        }
        if let digest = request.sha256 {
            let isDigest = digest.utf8.count == 64 && digest.allSatisfy(\.isHexDigit)
            guard isDigest else { throw invalid("expected 64 hexadecimal digits as 'sha256'") }
        }
        guard request.mirrors?.count ?? 0 <= 64, request.description?.utf8.count ?? 0 <= 4096 else {
            throw invalid("expected at most 64 mirrors and 4096 bytes of description")
        }
        try checkDomains(request, invalid)
        let fields = (request.headers ?? [:]).reduce(0) {
            $0 + $1.key.utf8.count + $1.value.utf8.count
        }
        guard fields <= 65_536 else {
            throw invalid("expected at most 65536 bytes of header fields")
        }
        if let size = request.size, size.rawValue > sizeLimit {
            throw invalid("expected a size of at most \(sizeLimit) bytes")
        }
        if let method = request.method {
            let isToken = !method.isEmpty && method.utf8.allSatisfy { (0x41...0x5A).contains($0) }
            guard isToken else { throw invalid("expected a method of HTTP, found '\(method)'") }
        }
        for (name, value) in session.headers.merging(
            request.headers ?? [:],
            uniquingKeysWith: { $1 }
        ) {
            try check(header: name, value)
        }
        switch request.kind {
        case .upload:
            guard let file = request.file, file.hasPrefix("/") else {
                throw invalid("expected the absolute path of a file to upload")
            }
        case .download:
            guard request.file == nil else { throw invalid("a download has no file to upload") }
        }
    }

    /// Checks the list of hosts, and that the request's own URLs are on them.
    private static func checkDomains(
        _ request: TransferRequest,
        _ invalid: (String) -> ControlRefusal
    ) throws(ControlRefusal) {
        guard let domains = request.allowedDomains else { return }
        let limit = ManifestLimits.allowedDomains
        guard domains.count <= limit, domains.allSatisfy({ (1...255).contains($0.utf8.count) })
        else {
            throw invalid("expected at most \(limit) 'allowedDomains' of 1 to 255 bytes")
        }
        let allowed = AllowedDomains(domains)
        for url in [request.url] + (request.mirrors ?? []) {
            guard let host = URL(string: url)?.host(), allowed.contains(host) else {
                throw invalid("a URL is on none of the 'allowedDomains'")
            }
        }
    }

    /// The priority as the scheduler compares it.
    static func priority(_ value: Double) throws(ControlRefusal) -> Int {
        guard (0...1).contains(value) else {
            throw ControlRefusal(.invalid, "expected a priority from 0 to 1, found \(value)")
        }
        return Int((value * 100).rounded())
    }

    /// Checks that a header field can be sent as it is.
    static func check(header name: String, _ value: String) throws(ControlRefusal) {
        let isName =
            !name.isEmpty && name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != 0x3A }
        let isValue = value.utf8.allSatisfy { $0 == 0x09 || $0 >= 0x20 && $0 != 0x7F }
        guard isName, isValue, name.utf8.count + value.utf8.count <= 16_384 else {
            throw ControlRefusal(.invalid, "the header field '\(name.prefix(64))' cannot be sent")
        }
        let reserved = [
            "range", "if-range", "accept-encoding", "content-length", "transfer-encoding", "host",
        ]
        guard !reserved.contains(name.lowercased()) else {
            throw ControlRefusal(.invalid, "the header field '\(name)' is the daemon's to set")
        }
    }
}

/// The parts of a URL that decide where a request goes.
struct TransferAddress {
    /// The host in lower case, with the port if one is given.
    var authority: String

    /// The URL without the name and password of a user.
    static func withoutUser(_ text: String) -> String {
        guard var parts = URLComponents(string: text), parts.user != nil else { return text }
        (parts.user, parts.password) = (nil, nil)
        return parts.string ?? ""
    }

    /// Reads an absolute http or https URL, or returns `nil` if the text is none.
    init?(_ text: String) {
        guard text.utf8.count <= 8192, let url = URL(string: text),
            let scheme = url.scheme?.lowercased(),
            scheme == "http" || scheme == "https", let host = url.host()?.lowercased(),
            !host.isEmpty,
            text.utf8.allSatisfy({ (0x21...0x7E).contains($0) })
        else { return nil }
        authority = "\(scheme)://\(host)" + (url.port.map { ":\($0)" } ?? "")
    }
}
