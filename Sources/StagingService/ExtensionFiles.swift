import Logging
import StageContainer
import StageControl
import StageEngine
import StageExtension
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// Downloads the files that a downloader extension requests, and hands each to the extension.
struct ExtensionFiles: Sendable {
    /// Limits of one run: number of files, and time for all of them.
    ///
    /// The next run downloads the rest.
    struct Limits: Sendable {
        var count: Int
        var time: Duration?

        /// Limits of a run that a person waits for or that has a deadline.
        static let attended = Limits(count: ExtensionRules.downloads, time: nil)
        /// Limits of a periodic run, which serves other applications as well.
        static let periodic = Limits(count: 1000, time: .seconds(1800))
    }

    /// The outcome of one round.
    struct Outcome: Sendable {
        /// The result of each file.
        var results: [FileResult] = []
        /// The downloads that the extension requests as replacements of failed ones.
        var replacements: [ExtensionDownload] = []
        /// The first failure of the extension while it handled failed downloads.
        var extensionProblem: StagingFailure?
    }

    let program: ExtensionRun
    let container: Container
    let stager: Stager
    let target: StagingTarget
    /// Set if files that are not essential are left to the next run.
    let isEssentialOnly: Bool
    /// Number of files that this run may still download.
    private var remaining: Int
    private let deadline: ContinuousClock.Instant?

    init(
        program: ExtensionRun,
        container: Container,
        stager: Stager,
        target: StagingTarget,
        isEssentialOnly: Bool,
        limits: Limits
    ) {
        self.program = program
        self.container = container
        self.stager = stager
        self.target = target
        self.isEssentialOnly = isEssentialOnly
        remaining = limits.count
        deadline = limits.time.map { .now + $0 }
    }

    /// Downloads files, essential ones first, then by descending priority.
    ///
    /// - Parameters:
    ///   - files: The files.
    ///   - budget: The allowances before the first launch; the sizes of the files are deducted from it.
    /// - Returns: The result of each file, and the extension's answers to failures.
    mutating func fetch(
        _ files: [ExtensionURLDownload],
        spending budget: inout InitialBudget?
    ) async -> Outcome {
        var outcome = Outcome()
        let files = files.sorted {
            ($0.isEssential ? 1 : 0, $0.priority) > ($1.isEssential ? 1 : 0, $1.priority)
        }
        for file in files {
            var result = FileResult(file)
            if !file.isEssential && isEssentialOnly || remaining == 0 || isOver {
                result.outcome = .left
            } else {
                remaining -= 1
                let failure = await fetch(file, spending: &budget, recordingIn: &result)
                if let failure {
                    do throws(StagingFailure) {
                        outcome.replacements += try await program.reportFailed(
                            .url(file),
                            with: failure
                        )
                    } catch {
                        outcome.extensionProblem = outcome.extensionProblem ?? error
                    }
                }
            }
            outcome.results.append(result)
        }
        return outcome
    }

    /// True if the run was cancelled, its time is up, or another registration is in effect by now.
    private var isOver: Bool {
        Task.isCancelled || deadline.map { $0 <= .now } ?? false || target.isObsolete
    }

    /// Downloads a file and hands it to the extension; returns the failure to report to the extension, if
    /// any.
    private func fetch(
        _ file: ExtensionURLDownload,
        spending budget: inout InitialBudget?,
        recordingIn result: inout FileResult
    ) async -> StagingFailure? {
        let size = ByteCount(file.fileSize)
        let refusal = budget?.refusal(
            ofFileFrom: URLReference(file.url).origin?.host ?? "",
            size: size,
            isEssential: file.isEssential
        )
        if let refusal {
            let failure = StagingFailure.refusal(refusal, of: .file(file.identifier))
            result.fail(failure)
            return failure
        }
        budget?.spend(size, isEssential: file.isEssential)
        switch await withDeadline(deadline, body: { await receive(file) }) {
        case .success(let path):
            result.transferred = size
            do throws(ExtensionError) {
                let download = ExtensionDownload.url(file)
                try await program.host.finished(download, file: path, for: program.request)
                result.outcome = .staged
            } catch {
                result.fail(.downloaderExtension(error))
            }
            return nil
        case .failure(.cancelled):
            // The received bytes stay in the container for the next run.
            result.outcome = .left
            return nil
        case .failure(let error):
            let failure = StagingFailure.engine(error, about: .file(file.identifier))
            result.fail(failure)
            return failure
        }
    }

    /// Downloads a file, with the extension's credential if the server demands one.
    private func receive(_ file: ExtensionURLDownload) async -> Result<FilePath, StageError> {
        let answer = await receive(file, fields: [])
        // The credential is not sent to a server that the file's server redirects to.
        guard case .failure(let error) = answer,
            let server = error.challengedURL.flatMap({ URLReference($0).origin }),
            server == URLReference(file.url).origin,
            let credential = await program.credential(for: .url(file), at: server)
        else { return answer }
        return await receive(file, fields: ["Authorization: \(credential.fieldValue)"])
    }

    private func receive(
        _ file: ExtensionURLDownload,
        fields: [String]
    ) async -> Result<FilePath, StageError> {
        let transfer = FileTransfer(
            url: file.url,
            size: ByteCount(file.fileSize),
            fields: file.headers.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value)" }
                + fields,
            trustedURLs: program.manifestURLs,
            priority: file.priority
        )
        do throws(StageError) {
            let directory: Directory
            do throws(FileError) {
                directory = try Directory.make(
                    program.request.scratch,
                    permissions: FilePermissions(rawValue: 0o700)
                )
            } catch {
                throw .container(.file(error))
            }
            return .success(
                try await stager.fetch(
                    transfer,
                    keepingIn: container,
                    to: directory,
                    as: "download"
                )
            )
        } catch {
            return .failure(error)
        }
    }
}

extension FileResult {
    fileprivate init(_ file: ExtensionURLDownload) {
        identifier = file.identifier
        url = file.url
        size = ByteCount(file.fileSize)
        isEssential = file.isEssential
    }
}

/// Runs `body` and cancels it at the deadline; `nil` means no deadline.
private func withDeadline<Value: Sendable>(
    _ deadline: ContinuousClock.Instant?,
    body: @escaping @Sendable () async -> Value
) async -> Value {
    guard let deadline else { return await body() }
    return await withTaskGroup(of: Value?.self) { group in
        group.addTask { await body() }
        group.addTask {
            // Cancelled: the body ended in time.
            try? await Task.sleep(for: (deadline - .now).sleepable)
            return nil
        }
        while let ending = await group.next() {
            group.cancelAll()
            if let value = ending { return value }
        }
        preconditionFailure("the body always ends")
    }
}

extension StageError {
    /// The URL of the server that refused the request without a user name and password (RFC 9110, section
    /// 15.5.2), or `nil` for another error.
    var challengedURL: String? {
        if case .transfer(.refused(let url, status: 401, _)) = self { url } else { nil }
    }
}

extension StagingFailure {
    /// The closest code of Apple's `BAErrorCode`, as for the daemon's downloads if those can fail for the same reason.
    package var backgroundAssetsCode: Int {
        switch self {
        case .engine(.transfer(.unacceptable(_, .domain)), _), .refusal(.disallowedDomain, _): 202
        case .engine(.unknownPack, _): 113
        case .refusal(.exceedsAllowance, _): 112
        case .refusal: 102
        default: transferKind.backgroundAssetsCode
        }
    }
}
