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
        if request.kind == .staging {
            host = Scheduler.workerHost
        } else {
            guard let host = TransferAddress(request.url)?.authority else {
                throw invalid(
                    "expected an absolute http or https URL, found '\(request.url.prefix(256))'"
                )
            }
            self.host = host
        }
        try RequestLimits.check(request, in: session)
        self.request = request
        priority = try Self.priority(request.priority ?? 0.5)
        needs = Needs(session, request)
        blocks = request.isSuspended ?? false ? .client : []
        earliest = request.earliestBegin.flatMap { $0 > now ? $0 : nil }
        deadline = now + min(max(session.resourceTimeout, 0), 10 * 365 * 86_400)
    }

    /// The priority as the scheduler compares it, from 0 to ``highestPriority``.
    static func priority(_ value: Double) throws(ControlRefusal) -> Int {
        try RequestLimits.check(priority: value)
        return Int((value * Double(highestPriority)).rounded())
    }

    /// The scheduler's number for a priority of 1, so large that values of usual sizes stay apart.
    static let highestPriority = 1_000_000_000
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
