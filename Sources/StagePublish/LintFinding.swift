/// One thing that a publisher should know about a manifest.
public struct LintFinding: Hashable, Sendable, Codable {
    /// How bad a finding is.
    public enum Severity: String, Hashable, Sendable, Codable {
        /// The manifest is refused.
        case error
        /// The manifest is accepted, but probably not what was meant.
        case warning
    }

    /// How bad it is.
    public var severity: Severity
    /// The path of the member that it is about, such as `packs[3].archive.url`.
    public var member: String
    /// What was found.
    public var message: String
    /// What to do about it; `nil` where the message says it all.
    public var hint: String?

    /// Creates a finding from its parts.
    public init(severity: Severity, member: String, message: String, hint: String? = nil) {
        self.severity = severity
        self.member = member
        self.message = message
        self.hint = hint
    }
}

extension LintFinding: CustomStringConvertible {
    /// The finding in one line, or two with the hint: `error: packs[0].id: …`.
    public var description: String {
        let line = "\(severity.rawValue): \(member): \(message)"
        return hint.map { "\(line)\nhint: \($0)" } ?? line
    }
}
