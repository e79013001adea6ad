import FoundationEssentials
import StageControl
import StageModel
import StageSystem

extension RequestLimits {
    /// Maximum bytes of a staging job in JSON: with the members that ``WorkerJob`` adds, it must fit into one message to
    /// a worker (``MessageSocket/maximumLength``).
    static let maximumStagingBytes = 65_000
    /// Maximum number of unfinished tasks in a transient session.
    static let stagings = 8
    /// Maximum number of a user's unfinished tasks that fail instead of waiting (``TransferRequest/failsWithoutRetry``): they are
    /// examined before each run of the scheduler.
    static let tasksWithoutRetry = 1000
    /// Maximum bytes of a failure reported by a client or worker.
    static let failure = 8192

    /// Checks a staging request.
    static func checkStaging(_ request: TransferRequest) throws(ControlRefusal) {
        guard let job = request.staging else {
            throw ControlRefusal(
                .invalid,
                message: "a staging needs 'staging', the packs to stage"
            )
        }
        try check(request.url, bytes: 0...url, as: "'url'")
        try checkShown(request.url, as: "the 'url' of a staging")
        try checkShown(request.description ?? "", as: "the 'description' of a staging")
        guard request.resumeToken == nil, request.headers == nil, request.mirrors == nil,
            request.allowedDomains == nil, request.sha256 == nil, request.failsWithoutRetry == nil
        else {
            throw ControlRefusal(.invalid, message: "a staging must not have members of a transfer")
        }
        let members = [
            job.application, job.container, job.applicationVersion, job.event,
        ]
        let texts = members.compactMap(\.self) + (job.manifests ?? []) + (job.packs ?? [])
        let bytes = (try? ControlFormat.encode(job).count) ?? .max
        guard bytes <= Self.maximumStagingBytes else {
            throw ControlRefusal(
                .invalid,
                message:
                    "expected a 'staging' of at most \(Self.maximumStagingBytes) bytes as JSON: ask for an event"
            )
        }
        for text in texts { try check(text, bytes: 1...url, as: "each text of a staging") }
        guard (job.application == nil) != (job.manifests == nil) else {
            throw ControlRefusal(.invalid, message: "a staging names an application or manifests")
        }
        guard (job.packs == nil) != (job.event == nil && job.isEssentialOnly == nil) else {
            throw ControlRefusal(.invalid, message: "a staging names packs or an event")
        }
        if let container = job.container, !container.hasPrefix("/") {
            throw ControlRefusal(.invalid, message: "expected the absolute path of a container")
        }
        for (name, value) in job.environment ?? [:] {
            guard StagingJob.variables.contains(name) else {
                throw ControlRefusal(
                    .invalid,
                    message: "a staging has no variable '\(name.prefix(64))'"
                )
            }
            try check(value, bytes: 1...path, as: "'\(name)'")
            guard value.hasPrefix("/") else {
                throw ControlRefusal(.invalid, message: "expected an absolute path as '\(name)'")
            }
        }
    }

    /// Checks byte counts reported by a client.
    static func check(_ bytes: StagingBytes) throws(ControlRefusal) {
        let sizes = 0...size
        guard sizes.contains(bytes.received.rawValue), sizes.contains(bytes.expected.rawValue)
        else {
            throw ControlRefusal(
                .invalid,
                message: "expected 'stagingBytes' of at most \(size.quantity(of: "byte"))"
            )
        }
    }

    /// Checks the reported end of a staging attempt.
    static func check(_ end: StagingEnd) throws(ControlRefusal) {
        guard let failure = end.failure else {
            guard end.pendingReason == nil else {
                throw ControlRefusal(
                    .invalid,
                    message: "a staging that is complete waits for nothing"
                )
            }
            return
        }
        try check(failure.reason, bytes: 0...Self.failure, as: "the reason of a failure")
        guard failure.resumeToken == nil else {
            throw ControlRefusal(.invalid, message: "a staging leaves no 'resumeToken'")
        }
        if case .other = failure.kind {
            throw ControlRefusal(.invalid, message: "the kind of the failure is not known")
        }
        if case .other? = end.pendingReason {
            throw ControlRefusal(.invalid, message: "the 'pendingReason' is not known")
        }
    }
}
