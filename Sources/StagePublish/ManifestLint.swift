package import StageModel

/// Finds errors in a manifest, and valid members that are probably unintended.
package enum ManifestLint {
    /// The total size of essential packs above which a first launch probably waits too long.
    package static let essentialSize = ByteCount(Int64(200_000_000))

    /// The advice for a manifest that exceeds the limit of its size.
    package static let adviceForSize = "move large 'userInfo' into the packs, or offer fewer packs"

    /// Returns the findings of a manifest, in the order of its members: the error if it is invalid, otherwise
    /// warnings.
    package static func findings(in json: [UInt8]) -> [LintFinding] {
        do throws(ManifestError) {
            let manifest = try Manifest(json: json)
            let misspelt = Manifest.misspeltMembers(in: json).map { member in
                warning(at: member.path, member.finding)
            }
            return misspelt + warnings(about: manifest)
        } catch {
            return [finding(for: error)]
        }
    }

    private static func finding(for error: ManifestError) -> LintFinding {
        let member: String
        var message = error.description
        var hint: String?
        switch error {
        case .invalid(let path, let fault):
            (member, message) = (path, fault.description)
        case .duplicate(let path, let first, let value):
            member = path
            message = "expected a value of its own, found '\(value.forDisplay())' of \(first)"
        case .unknownVersion(let found, let known):
            member = "manifestVersion"
            message = ValueError(expected: "\(known)", found: "\(found)").description
        case .tooLarge:
            member = "the document"
            hint = adviceForSize
        case .notJSON:
            member = "the document"
        }
        return LintFinding(severity: .error, member: member, message: message, hint: hint)
    }

    private static func warnings(about manifest: Manifest) -> [LintFinding] {
        var findings = baseURLWarnings(manifest)
        if manifest.packs.isEmpty {
            findings.append(warning(at: "packs", "there are no packs"))
        }
        var seen = Seen()
        for (index, pack) in manifest.packs.enumerated() {
            findings += warnings(about: pack, at: "packs[\(index)]")
            findings += seen.repetitions(in: pack, at: "packs[\(index)]")
        }
        return findings + essentialWarnings(manifest)
    }

    private static func baseURLWarnings(_ manifest: Manifest) -> [LintFinding] {
        var findings: [LintFinding] = []
        for (index, url) in manifest.baseURLs.enumerated() {
            let member = "baseURLs[\(index)]"
            if isPlainHTTP(url) { findings.append(plainHTTP(member)) }
            if url.withoutQuery.utf8.last != UInt8(ascii: "/") {
                findings.append(
                    warning(
                        at: member,
                        "the last component of '\(url.forDisplay())' is not part of packs' URLs",
                        hint: "end the URL with '/'"
                    )
                )
            }
        }
        let urls = manifest.packs.flatMap(\.urls)
        if !manifest.baseURLs.isEmpty, !urls.isEmpty, urls.allSatisfy(isAbsolute) {
            findings.append(
                warning(
                    at: "baseURLs",
                    "not used, since the URLs of all packs are absolute",
                    hint: "make them relative, so that every mirror is used"
                )
            )
        }
        return findings
    }

    private static func warnings(about pack: Pack, at member: String) -> [LintFinding] {
        var findings: [LintFinding] = []
        if pack.policy == .essential([]) || pack.policy == .prefetch([]) {
            findings.append(
                warning(
                    at: "\(member).policy",
                    "no event downloads the pack",
                    hint: "name an event in 'installationEventTypes', or use 'onDemand'"
                )
            )
        }
        if let index = pack.index, isPlainHTTP(index.url) {
            findings.append(plainHTTP("\(member).index.url"))
        }
        if let archive = pack.archive, isPlainHTTP(archive.url) {
            findings.append(plainHTTP("\(member).archive.url"))
        }
        if let archive = pack.archive, let format = format(ofURL: archive.url),
            format != archive.format
        {
            findings.append(
                warning(
                    at: "\(member).archive.format",
                    "'\(archive.format.rawValue)' does not fit a URL that ends like "
                        + "'\(format.rawValue)'"
                )
            )
        }
        if pack.installedSize == .zero {
            findings.append(warning(at: "\(member).installedSize", "the pack is empty"))
        }
        if pack.fileCount == 0 {
            findings.append(warning(at: "\(member).fileCount", "the pack has no files"))
        }
        return findings
    }

    private static func essentialWarnings(_ manifest: Manifest) -> [LintFinding] {
        let size = manifest.packs.reduce(ByteCount.zero) { size, pack in
            guard case .essential = pack.policy else { return size }
            return size + pack.downloadSize
        }
        guard size > essentialSize else { return [] }
        let message = "essential packs have \(size) in all, more than \(essentialSize)"
        let hint = "make packs 'prefetch' that the first launch does not need"
        return [warning(at: "packs", message, hint: hint)]
    }
}

extension ManifestLint {
    /// The ids and digests of earlier packs, to find duplicates.
    private struct Seen {
        private var ids: [String: (member: String, id: PackID)] = [:]
        private var digests: [Digest: String] = [:]

        mutating func repetitions(in pack: Pack, at member: String) -> [LintFinding] {
            var findings: [LintFinding] = []
            let key = pack.id.text.lowercased()
            if let earlier = ids[key] {
                findings.append(
                    warning(
                        at: "\(member).id",
                        "'\(pack.id)' differs only by case from '\(earlier.id)' of \(earlier.member).id"
                    )
                )
            } else {
                ids[key] = (member, pack.id)
            }
            let kind = pack.index == nil ? "archive" : "index"
            if let earlier = digests[pack.contentDigest] {
                findings.append(
                    warning(
                        at: "\(member).\(kind).sha256",
                        "the \(kind) is the same as \(earlier).\(kind)"
                    )
                )
            } else {
                digests[pack.contentDigest] = member
            }
            return findings
        }
    }

    private static func warning(
        at member: String,
        _ message: String,
        hint: String? = nil
    ) -> LintFinding {
        LintFinding(severity: .warning, member: member, message: message, hint: hint)
    }

    private static func plainHTTP(_ member: String) -> LintFinding {
        warning(
            at: member,
            "plain http shows downloads to others on the network",
            hint: "use https"
        )
    }

    private static func isPlainHTTP(_ url: String) -> Bool {
        URLReference(url).schemeName == "http"
    }

    /// Returns whether a valid manifest URL is absolute.
    private static func isAbsolute(_ url: String) -> Bool {
        URLReference(url).schemeName != nil
    }

    /// Returns the format for the suffix of a URL, or `nil` if it is unknown.
    private static func format(ofURL url: String) -> ArchiveFormat? {
        format(ofPath: String(url.withoutQuery))
    }

    /// Returns the format for the suffix of a path, or `nil` if it is unknown.
    package static func format(ofPath path: String) -> ArchiveFormat? {
        let path = path.lowercased()
        return endings.first { path.hasSuffix($0.ending) }?.format
    }

    private static let endings: [(ending: String, format: ArchiveFormat)] = [
        (".tar", .tar),
        (".tar.gz", .tarGzip), (".tgz", .tarGzip),
        (".tar.xz", .tarXZ), (".txz", .tarXZ),
        (".tar.zst", .tarZstandard), (".tzst", .tarZstandard),
        (".tar.bz2", .tarBzip2), (".tbz2", .tarBzip2), (".tbz", .tarBzip2),
        (".tar.lz4", .tarLZ4),
        (".zip", .zip),
    ]
}
