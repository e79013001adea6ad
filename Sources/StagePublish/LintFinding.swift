/// A problem of a manifest that its publisher should know about.
package struct LintFinding: Hashable, Sendable, Codable {
    /// The severity of a finding.
    package enum Severity: String, Hashable, Sendable, Codable {
        /// The manifest is rejected.
        case error
        /// The manifest is accepted, but is probably not what the publisher intended.
        case warning
    }

    /// The severity.
    package var severity: Severity
    /// The path of the affected member, such as `packs[3].archive.url`.
    package var member: String
    /// The problem.
    package var message: String
    /// The remedy; `nil` if the message implies it.
    package var hint: String?

    /// Creates a finding from its parts.
    package init(severity: Severity, member: String, message: String, hint: String? = nil) {
        self.severity = severity
        self.member = member
        self.message = message
        self.hint = hint
    }
}

extension LintFinding: CustomStringConvertible {
    /// The finding in one line, or two with the hint: `error: packs[0].id: …`.
    package var description: String {
        let line = "\(severity.rawValue): \(member): \(message)"
        return hint.map { "\(line)\nhint: \($0)" } ?? line
    }
}
