package import StageModel
package import StageTransfer

/// Checks the servers of a manifest's objects: errors, and conditions that prevent resuming downloads.
package enum ServerLint {
    /// Requests the last byte of every object of the packs from every mirror, and returns the findings in the order of the
    /// manifest, bundles last.
    ///
    /// Objects are archives, indexes, deltas of indexes, delta sets, patches and bundles.
    ///
    /// `manifestURL` is the future URL of the manifest; without it, archives whose URLs depend on it are
    /// findings.
    package static func findings(
        about manifest: Manifest,
        manifestURL: String?,
        with engine: TransferEngine
    ) async -> [LintFinding] {
        var checks: [ObjectCheck] = []
        var bundles: [BundleLint] = []
        for (index, pack) in manifest.packs.enumerated() {
            for object in pack.objects {
                checks += manifest.urls(for: object, of: pack, manifestURL: manifestURL ?? "").map {
                    ObjectCheck(
                        size: object.size,
                        digests: object.digests,
                        url: $0,
                        member: "packs[\(index)].\(object.member)"
                    )
                }
            }
            guard let reference = pack.index else { continue }
            bundles.append(
                BundleLint(
                    manifest: manifest,
                    manifestURL: manifestURL ?? "",
                    pack: pack,
                    reference: reference,
                    member: "packs[\(index)].index"
                )
            )
        }
        var findings = await Self.findings(of: checks, with: engine)
        // Only one index is in memory at a time.
        for lint in bundles { findings += await lint.findings(with: engine) }
        return findings
    }

    /// Runs all checks, and returns the findings in their order.
    static func findings(
        of checks: [ObjectCheck],
        with engine: TransferEngine
    ) async -> [LintFinding] {
        await withTaskGroup(of: (Int, [LintFinding]).self) { group in
            for (position, check) in checks.enumerated() {
                group.addTask { (position, await check.findings(with: engine)) }
            }
            var findings: [Int: [LintFinding]] = [:]
            for await (position, found) in group { findings[position] = found }
            return checks.indices.flatMap { findings[$0] ?? [] }
        }
    }
}

extension Manifest {
    /// Returns the URLs of an object of a pack, in the order in which to try them.
    fileprivate func urls(
        for object: PackObject,
        of pack: Pack,
        manifestURL: String
    ) -> [String] {
        if let url = object.url { return urls(for: url, manifestURL: manifestURL) }
        guard let index = pack.index else { return [] }
        return urls(forDeltaSet: object.digests[0], of: index, manifestURL: manifestURL)
    }
}

/// A check of an object at one mirror.
struct ObjectCheck: Sendable {
    /// The expected size.
    var size: ByteCount
    /// Digests; a URL that contains one of them always has the same content.
    var digests: [Digest]
    var url: String
    /// The path of the manifest member that names it.
    var member: String

    /// Sends the request, and checks the response.
    func findings(with engine: TransferEngine) async -> [LintFinding] {
        guard url.contains(":") else {
            return [
                finding(
                    .error,
                    message: "depends on the URL of the manifest",
                    hint: "pass --manifest-url, or add 'baseURLs' to the manifest"
                )
            ]
        }
        do throws(TransferError) {
            return findings(on: try await engine.probe(url, fields: [field].compactMap { $0 }))
        } catch {
            return [LintFinding(severity: .error, member: "\(member).url", message: "\(error)")]
        }
    }

    /// The header field that requests the last byte; `nil` for an empty object.
    var field: String? {
        let size = self.size.rawValue
        return size == 0 ? nil : "Range: bytes=\(size - 1)-\(size - 1)"
    }

    /// Checks a response.
    func findings(on answer: ProbeAnswer) -> [LintFinding] {
        switch answer {
        case .file(let size):
            return sizeFindings(size.rawValue)
        case .server(let summary, let defect):
            let findings = contentFindings(summary)
            guard findings.allSatisfy({ $0.severity != .error }) else { return findings }
            return findings + validatorFindings(summary, defect: defect)
        }
    }

    private func contentFindings(_ summary: ResponseSummary) -> [LintFinding] {
        let total = summary.value(of: "Content-Range")?.split(separator: "/").last.flatMap {
            Int64($0)
        }
        switch summary.status {
        case 206:
            return sizeFindings(total) + bodyFindings(summary, of: total) + rangeFindings(summary)
        case 200:
            let length = summary.value(of: "Content-Length").flatMap { Int64($0) }
            let body = bodyFindings(summary, of: length)
            // The length of another body says nothing about the archive.
            let sizes = body.isEmpty ? sizeFindings(length) : []
            return sizes + body + (size == .zero ? [] : [noRanges(summary)])
        case 416:
            return sizeFindings(total)
        default:
            return [
                finding(
                    .error,
                    message: "is answered with status \(summary.status)",
                    hint: summary.status == 404 ? "upload it before the manifest" : nil
                )
            ]
        }
    }

    private func sizeFindings(_ found: Int64?) -> [LintFinding] {
        guard let found, found != size.rawValue else { return [] }
        return [
            LintFinding(
                severity: .error,
                member: "\(member).size",
                message: "expected \(size.rawValue.quantity(of: "byte")), found \(found) "
                    + "at '\(url.forDisplay())'",
                hint: "upload the archive again, under a URL of its own for each version"
            )
        ]
    }

    /// Returns what is wrong with the content of a response that announces `length` bytes of it.
    private func bodyFindings(_ summary: ResponseSummary, of length: Int64?) -> [LintFinding] {
        if let encoding = summary.value(of: "Content-Encoding"),
            encoding.lowercased() != "identity"
        {
            let text = "is sent with the content encoding '\(encoding.forDisplay())', which "
            // Clients accept it as the name of the archive's own compression.
            let isOnlyNamed = length == size.rawValue
            return [
                finding(
                    isOnlyNamed ? .warning : .error,
                    message: text + (isOnlyNamed ? "caches may decode" : "is refused"),
                    hint: "send archives as they are; nginx: 'gzip off', Apache: 'SetEnv no-gzip 1'"
                )
            ]
        }
        if let type = summary.value(of: "Content-Type"), type.lowercased().hasPrefix("text/html") {
            return [
                finding(
                    .error,
                    message: "is answered with a web page",
                    hint: "send archives as 'application/octet-stream'"
                )
            ]
        }
        return []
    }

    private func rangeFindings(_ summary: ResponseSummary) -> [LintFinding] {
        let last = size.rawValue - 1
        let expected = "bytes \(last)-\(last)/\(size.rawValue)"
        let found = summary.value(of: "Content-Range")
        // A different total size is a separate finding.
        guard found?.hasSuffix("/\(size.rawValue)") ?? true, found != expected else {
            return []
        }
        return [
            finding(
                .warning,
                message: "is answered with another range: expected '\(expected)', found "
                    + (found.map { "'\($0.forDisplay())'" } ?? "nothing"),
                hint: "check the handling of ranges by a cache or proxy before the server"
            )
        ]
    }

    private func noRanges(_ summary: ResponseSummary) -> LintFinding {
        finding(
            .warning,
            message: "does not support ranges: interrupted downloads restart",
            hint: Self.isNginx(summary)
                ? "nginx: no 'max_ranges 0', and 'gzip off' and no filters for archives"
                : "let the server answer 'Range' with status 206"
        )
    }

    private func validatorFindings(
        _ summary: ResponseSummary,
        defect: ValidatorDefect?
    ) -> [LintFinding] {
        let isNamed = digests.contains { url.contains($0.description) }
        guard let defect, !isNamed else { return [] }
        let reason = Self.explanation(of: defect, summary: summary)
        return [
            finding(
                .warning,
                message: "has no strong validator (\(reason)): interrupted downloads may restart",
                hint: Self.hint(for: defect, summary: summary)
            )
        ]
    }

    private static func explanation(
        of defect: ValidatorDefect,
        summary: ResponseSummary
    ) -> String {
        func field(_ name: String) -> String {
            "\(name) \(summary.value(of: name)?.forDisplay() ?? "is missing")"
        }
        return switch defect {
        case .missing: "there is no entity tag"
        case .weakEntityTag:
            "the entity tag \(summary.value(of: "ETag")?.forDisplay() ?? "") is weak"
        case .recentChange:
            "by its dates it was modified in the second of the answer, or later: "
                + "\(field("Last-Modified")), \(field("Date"))"
        }
    }

    private static func hint(for defect: ValidatorDefect, summary: ResponseSummary) -> String {
        switch defect {
        case .recentChange:
            "lint again in a second; if the warning remains, correct the time of the file or "
                + "the clock of the server, or put the digest in the URL"
        case .missing, .weakEntityTag:
            isNginx(summary)
                ? "nginx: 'etag on' and 'gzip off' for archives; or put the digest in the URL"
                : "let the server send a strong ETag, or put the digest in the URL"
        }
    }

    private static func isNginx(_ summary: ResponseSummary) -> Bool {
        summary.value(of: "Server")?.lowercased().hasPrefix("nginx") ?? false
    }

    private func finding(
        _ severity: LintFinding.Severity,
        message: String,
        hint: String? = nil
    ) -> LintFinding {
        LintFinding(
            severity: severity,
            member: "\(member).url",
            message: "'\(url.forDisplay())' \(message)",
            hint: hint
        )
    }
}
