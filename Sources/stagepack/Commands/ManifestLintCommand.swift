import ArgumentParser
import FoundationEssentials
import StageDigest
import StageEngine
import StageModel
import StagePack
import StagePublish
import StageSigning
import StageSystem
import StageTransfer
import StageTrust
import StagingService
import SystemPackage

struct ManifestLintCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "lint",
        abstract: "Report errors and probable mistakes in manifests.",
        discussion: """
            Archives with relative URLs have to be beside the manifest, with its sizes and digests. With '--online', requests the last byte of every object of the packs from every mirror, \
            and checks that it exists, has the right size, and that its download can be resumed. Signed metadata beside a \
            manifest has to name it as it is, and not to expire soon.

            Ends with status 3 if a manifest has an error, or a warning with '--strict'.
            """
    )

    @Argument(help: "The manifests' files.", completion: .file(extensions: ["json"]))
    var files: [String]

    @Flag(help: "Check the servers of the packs, too.") var online = false

    @Option(
        help: ArgumentHelp(
            "The future URL of the manifest, for relative URLs; their files are then not looked for "
                + "beside the manifest.",
            valueName: "url"
        )
    )
    var manifestURL: String?

    @Flag(help: "Count warnings as errors for the exit status.") var strict = false
    @Flag(help: "Print the findings as JSON.") var json = false
    @OptionGroup(title: "Network") var network: NetworkOptions
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    mutating func validate() throws {
        guard let manifestURL else { return }
        do throws(ValueError) {
            try URLReference.check(manifestURL, form: .absolute)
        } catch {
            throw ValidationError("--manifest-url: \(error)")
        }
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        var reports: [LintReport] = []
        for file in files {
            let bytes = try Self.read(file)
            var findings = ManifestLint.findings(in: bytes)
            findings += try Self.signatureFindings(of: file, bytes)
            if !online, manifestURL == nil {
                findings += await withBlockingThread { Self.fileFindings(of: file, bytes) }
            }
            if online, findings.allSatisfy({ $0.severity != .error }) {
                findings += try await onlineFindings(bytes)
            }
            reports.append(LintReport(file: file, findings: findings))
        }
        Console.print(
            Listing(elements: reports.filter { json || !$0.isClean }, name: "files"),
            asJSON: json
        )
        let severities = reports.flatMap { $0.findings.map(\.severity) }
        return severities.contains { strict || $0 == .error } ? .findings : .success
    }

    private func onlineFindings(_ bytes: [UInt8]) async throws(CommandFailure) -> [LintFinding] {
        let environment = ProcessEnvironment.current
        guard !network.isOffline, !NetworkOptions.isOffline(environment) else {
            throw CommandFailure(.offline("the archives have to be requested from their servers"))
        }
        let configuration = try network.configuration(environment)
        // An invalid manifest is a finding already.
        guard let manifest = try? Manifest(json: bytes) else { return [] }
        let url = manifestURL
        let (findings, interruption) = await withInterruption(after: nil) {
            await Self.findings(about: manifest, at: url, under: configuration)
        }
        guard interruption == nil else {
            throw CommandFailure(
                status: .interrupted,
                message: "not all servers were checked",
                hint: nil,
                retryAdvice: .now
            )
        }
        do throws(FileError) {
            return try findings.get()
        } catch {
            throw CommandFailure(StagingFailure(StageError.transfer(.storage(error))))
        }
    }

    /// Returns the findings of requests to the servers, or the error if the system refuses a thread.
    private static func findings(
        about manifest: Manifest,
        at url: String?,
        under configuration: TransferConfiguration
    ) async -> Result<[LintFinding], FileError> {
        await withTransferEngine(
            configuration,
            logger: Log.logger,
            run: { engine in
                .success(
                    await ServerLint.findings(about: manifest, manifestURL: url, with: engine)
                )
            },
            orElse: { .failure($0) }
        )
    }

    /// Returns a finding for each object of a pack that a URL relative to the manifest names, and that is not
    /// beside it, or has other bytes there.
    private static func fileFindings(of file: String, _ bytes: [UInt8]) -> [LintFinding] {
        // With base URLs, files are relative to these, and an invalid manifest is a finding already.
        guard let manifest = try? Manifest(json: bytes), manifest.baseURLs.isEmpty else {
            return []
        }
        let path = FilePath(file)
        let folder = (path.resolved ?? path).absolute.removingLastComponent()
        var findings: [LintFinding] = []
        for (position, pack) in manifest.packs.enumerated() {
            for object in pack.objects {
                guard let url = object.url, URLReference(url).schemeName == nil,
                    !url.hasPrefix("/"),
                    let name = url.withoutQuery.percentDecoded
                else { continue }
                let path = folder.pushing(FilePath(name))
                let member = "packs[\(position)].\(object.member)"
                if let finding = fileFinding(about: object, named: url, at: path, member: member) {
                    findings.append(finding)
                }
            }
        }
        return findings
    }

    /// Compares an object with its file, which it reads completely if it has the right size; `nil` if they are equal.
    private static func fileFinding(
        about object: PackObject,
        named url: String,
        at path: FilePath,
        member: String
    ) -> LintFinding? {
        let name = url.forDisplay()
        let (expected, found): (String, String)
        do throws(FileError) {
            let file = try File.open(readingRegular: path)
            let size = try file.status().size
            if size != object.size.rawValue {
                (expected, found) = (
                    object.size.rawValue.quantity(of: "byte"), size.quantity(of: "byte")
                )
            } else {
                let digest = try Digest(of: file)
                if digest == object.digests[0] { return nil }
                (expected, found) = ("\(object.digests[0])", "\(digest)")
            }
        } catch {
            guard error.errno == .noSuchFileOrDirectory else {
                let member = "\(member).url"
                return LintFinding(severity: .error, member: member, message: "\(error)")
            }
            return LintFinding(
                severity: .warning,
                member: "\(member).url",
                message: "'\(name)' does not exist beside the manifest",
                hint: "put it there; if it is only on the server, pass --online --manifest-url URL"
            )
        }
        return LintFinding(
            severity: .error,
            member: member,
            message:
                "'\(name)' does not match the manifest: expected \(expected), found \(found)",
            hint: "add it to the manifest as a new version: 'stagepack manifest add'"
        )
    }

    /// Returns the findings about the signed metadata beside a manifest.
    private static func signatureFindings(
        of file: String,
        _ bytes: [UInt8]
    ) throws(CommandFailure) -> [LintFinding] {
        let (directory, name) = try ManifestFile(file).location()
        let files = RepositoryFiles(directory: directory, manifestName: name)
        do throws(SigningError) {
            return SignatureLint.findings(
                about: try files.inspect(manifest: bytes, at: .now),
                manifest: CommandFailure.quoted(file)
            )
        } catch {
            let failure = CommandFailure(error, manifest: file)
            return [
                LintFinding(
                    severity: .error,
                    member: "metadata",
                    message: failure.message,
                    hint: failure.hint
                )
            ]
        }
    }

    private static func read(_ file: String) throws(CommandFailure) -> [UInt8] {
        do throws(FileError) {
            // Reads more than the limit, so that the size is reported as a finding.
            return try File.open(reading: FilePath(file))
                .readAll(limit: 16 * ManifestLimits.byteCount)
        } catch {
            throw ManifestFile.failure(error, named: file)
        }
    }
}

/// Output of `manifest lint` for one file.
struct LintReport: Encodable, CustomStringConvertible {
    var file: String
    var findings: [LintFinding]

    var isClean: Bool { findings.isEmpty }

    var description: String {
        findings.groupedByCause.map { "\(file.forDisplay()): \($0)" }.joined(separator: "\n")
    }
}

extension [LintFinding] {
    /// The findings for people: those with the same cause at URLs of one server are one, which names the members of the others.
    fileprivate var groupedByCause: [LintFinding] {
        var causes: [LintFinding] = []
        var groups: [LintFinding: [LintFinding]] = [:]
        for finding in self {
            let cause = finding.cause
            if groups[cause] == nil { causes.append(cause) }
            groups[cause, default: []].append(finding)
        }
        return causes.compactMap { cause in
            guard let members = groups[cause], var finding = members.first else { return nil }
            finding.message += Self.text(ofOthers: members.dropFirst().map(\.member))
            return finding
        }
    }

    /// Returns the names of the other members, as the end of a message.
    private static func text(ofOthers members: [String]) -> String {
        guard !members.isEmpty else { return "" }
        return "; the same for " + members.named(upTo: 8, of: "member")
    }
}

extension LintFinding {
    /// The finding without what differs between the objects of a server: their members, the paths of their URLs, and times.
    fileprivate var cause: LintFinding {
        var cause = self
        cause.message = message.withoutPathsAndTimes
            .replacing(#/^'[^':]*' (?=depends on)/#, with: "")
        // Without a URL, the member is what the finding is about.
        if cause.message != message { cause.member = "" }
        return cause
    }
}
