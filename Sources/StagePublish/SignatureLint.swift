package import StageSigning

/// Checks the signed metadata of a manifest for errors and imminent expiry.
package enum SignatureLint {
    /// Returns errors if clients reject the metadata, and warnings if less than a third of its validity
    /// remains.
    ///
    /// - Parameters:
    ///   - inspection: The state of the metadata; `nil` if there is none.
    ///   - manifest: The manifest's path, quoted for a shell, for hints.
    /// - Returns: The findings, in the order of the roles.
    package static func findings(
        about inspection: RepositoryInspection?,
        manifest: String
    ) -> [LintFinding] {
        guard let inspection else { return [] }
        var findings: [LintFinding] = []
        let sign = "stagepack sign \(manifest) --key KEYFILE"
        if let fault = inspection.fault {
            findings.append(error("\(fault)", of: "metadata", hint: sign))
        }
        for role in inspection.roles {
            let command = role.role == .root ? "rotate" : "refresh"
            let hint = "stagepack \(command) \(manifest) --key KEYFILE"
            if role.isExpired {
                findings.append(error("expired at \(role.expiry)", of: role.path, hint: hint))
            } else if role.isClose {
                findings.append(
                    LintFinding(
                        severity: .warning,
                        member: role.path,
                        message: "expires at \(role.expiry)",
                        hint: hint
                    )
                )
            }
        }
        guard inspection.fault == nil else { return findings }
        if !inspection.namesManifest {
            findings.append(
                error(
                    "expected metadata that names the manifest as it is, found that of another "
                        + "version",
                    of: "metadata",
                    hint: sign
                )
            )
        } else if !inspection.hasCopy {
            findings.append(
                error(
                    "the copy of the manifest, which clients download, is missing",
                    of: "metadata",
                    hint: sign
                )
            )
        }
        return findings
    }

    private static func error(_ message: String, of member: String, hint: String) -> LintFinding {
        LintFinding(severity: .error, member: member, message: message, hint: hint)
    }
}
