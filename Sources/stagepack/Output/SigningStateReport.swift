import StageModel
import StageSigning

/// Output of the commands that sign.
struct SigningStateReport: Encodable, CustomStringConvertible {
    /// The manifest's path as it was given.
    var manifest: String
    /// Set if the command has published metadata.
    var isChanged: Bool
    /// Set if published metadata exists.
    var isPublished: Bool
    /// The earliest expiry of published metadata.
    var nextExpiry: String?
    /// The published metadata of each role.
    var roles: [SigningReport.Role]
    /// The metadata that does not have enough signatures yet.
    var drafts: [SigningReport.Draft]
    /// Set if one of the given keys added a signature.
    var hasSigned: Bool

    init(_ report: SigningReport, of manifest: String) {
        self.manifest = manifest
        isChanged = report.isChanged
        isPublished = !report.roles.isEmpty
        nextExpiry = report.next?.expires
        roles = report.roles
        drafts = report.drafts
        hasSigned = report.hasSigned
    }

    var description: String {
        var lines: [String] = []
        let file = manifest.forDisplay()
        if isChanged {
            lines.append("\(file): published")
        } else {
            lines.append(isPublished ? "\(file): nothing to publish" : "\(file): not published")
        }
        lines += roles.map { role in
            let name = role.role.rawValue.padded(to: 10)
            let mark = role.isNew ? " (new)" : ""
            return "  \(name)version \(role.version), expires \(role.expires)\(mark)"
        }
        lines += drafts.map { draft in
            let name = draft.role.rawValue.padded(to: 10)
            return "  \(name)version \(draft.version), a draft: \(Self.state(of: draft))"
        }
        if let nextExpiry {
            lines.append("next expiry: \(nextExpiry)")
        }
        return lines.joined(separator: "\n")
    }

    private static func state(of draft: SigningReport.Draft) -> String {
        let signed = "signed by \(list(draft.signed, ifEmpty: "no key"))"
        guard draft.needed > 0 else { return "\(signed), waits for other roles" }
        let count = draft.needed.quantity(of: "more signature")
        return "\(signed), needs \(count), by \(list(draft.missing, ifEmpty: "no key"))"
    }

    private static func list(_ ids: [String], ifEmpty none: String) -> String {
        ids.isEmpty ? none : ids.map { String($0.prefix(8)) }.joined(separator: ", ")
    }

    /// The command with which the holders of other keys continue; `nil` without drafts.
    var next: String? {
        let missing = drafts.filter { $0.needed > 0 }
        guard let first = missing.first else {
            return drafts.isEmpty ? nil : command("sign", root: false)
        }
        return command("sign", root: first.role == .root)
    }

    private func command(_ name: String, root: Bool) -> String {
        "stagepack \(name) \(CommandFailure.quoted(manifest))\(root ? " --root" : "") --key KEYFILE"
    }

    /// Prints the remaining steps to standard error.
    func printRemainingSteps() {
        if let next { Console.note("hint: with the missing keys: \(next)") }
        for role in roles where role.isClose {
            let verb = role.isExpired ? "expired" : "expires"
            Console.note(
                "stagepack: warning: the \(role.role.rawValue) metadata \(verb) at \(role.expires)"
            )
        }
        if let role = roles.first(where: \.isClose) {
            Console.note("hint: with the keys of the role: \(renewal(of: role.role))")
        }
    }

    /// Returns the command that renews the metadata of a role.
    func renewal(of role: SigningRole) -> String {
        switch role {
        case .root: command("rotate", root: false)
        case .targets: command("sign", root: false)
        case .snapshot, .timestamp: command("refresh", root: false)
        }
    }
}

extension String {
    /// Returns the text, padded with spaces to a width, and with at least one space.
    fileprivate func padded(to width: Int) -> String {
        self + String(repeating: " ", count: max(1, width - count))
    }
}
