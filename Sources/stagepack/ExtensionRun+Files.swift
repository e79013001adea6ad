import FoundationEssentials
import Logging
import StageContainer
import StageEngine
import StageExtension
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

extension ExtensionRun {
    /// The most files that a run fetches, and the most time for all of them; the rest is left to the next run.
    struct FileLimits: Sendable {
        var count: Int
        var time: Duration?

        /// Those of a run that a person waits for or that has a deadline.
        static let attended = FileLimits(count: ExtensionRules.downloads, time: nil)
        /// Those of a run of the timer's, which has other applications to serve as well.
        static let periodic = FileLimits(count: 1000, time: .seconds(1800))
    }

    /// Fetches the files that the extension asked for and hands each over.
    func fetch(
        _ choice: Choice,
        essentialOnly: Bool,
        within limits: FileLimits,
        _ budget: InitialBudget?,
        _ container: Container,
        _ stager: Stager
    ) async -> [FileReport] {
        await withTimeLimit(limits.time) {
            await fetch(choice, essentialOnly, limits.count, budget, container, stager)
        }
    }

    /// Fetches files until the task is cancelled; what is not begun by then is left.
    private func fetch(
        _ choice: Choice,
        _ essentialOnly: Bool,
        _ limit: Int,
        _ budget: InitialBudget?,
        _ container: Container,
        _ stager: Stager
    ) async -> [FileReport] {
        var budget = budget
        var count = 0
        var reports: [FileReport] = []
        let files = choice.files
            .sorted {
                ($0.isEssential ? 1 : 0, $0.priority) > ($1.isEssential ? 1 : 0, $1.priority)
            }
        for file in files {
            var report = FileReport(file)
            guard file.isEssential || !essentialOnly, count < limit, !Task.isCancelled else {
                report.outcome = .left
                reports.append(report)
                continue
            }
            count += 1
            let size = ByteCount(file.fileSize)
            let host = URL(string: file.url)?.host() ?? ""
            let refusal = budget?.refusal(
                ofFileFrom: host,
                size: size,
                isEssential: file.isEssential
            )
            if let refusal {
                report.fail(CommandFailure(refusal, of: "file '\(file.identifier.forDisplay())'"))
            } else {
                budget?.spend(size, isEssential: file.isEssential)
                await fetch(file, container, stager, &report)
            }
            reports.append(report)
        }
        return reports
    }

    private func fetch(
        _ file: ExtensionURLDownload,
        _ container: Container,
        _ stager: Stager,
        _ report: inout FileReport
    ) async {
        let download = ExtensionDownload.url(file)
        do throws(StageError) {
            let path = try await receive(file, container, stager)
            do throws(ExtensionError) {
                try await host.finished(download, file: path, for: request)
                report.outcome = .staged
            } catch {
                report.fail(CommandFailure(error))
            }
        } catch {
            guard error != .cancelled else {
                // What has arrived is kept, and the next run goes on there.
                report.outcome = .left
                return
            }
            let name = "file '\(file.identifier.forDisplay())'"
            report.fail(CommandFailure(error, of: name))
            let failure = ExtensionFailure(code: error.backgroundAssetsCode, message: "\(error)")
            do throws(ExtensionError) {
                _ = try await host.failed(download, failure, for: request)
            } catch {
                Log.logger.warning("\(error)")
            }
        }
    }

    /// Fetches a file; where the server wants to know who asks, as the extension says.
    private func receive(
        _ file: ExtensionURLDownload,
        _ container: Container,
        _ stager: Stager
    ) async throws(StageError) -> FilePath {
        do throws(StageError) {
            return try await receive(file, [], container, stager)
        } catch {
            guard case .transfer(.refused(_, 401, _)) = error,
                let field = await credential(for: file)
            else { throw error }
            return try await receive(file, [field], container, stager)
        }
    }

    /// The field that the extension answers a server's challenge with (RFC 7617), or `nil` if it leaves
    /// it at that.
    private func credential(for file: ExtensionURLDownload) async -> String? {
        let name = URL(string: file.url)?.host() ?? ""
        let challenge = ExtensionChallenge(method: "basic", host: name)
        do throws(ExtensionError) {
            let answer = try await host.answer(to: challenge, for: .url(file), of: request)
            guard case .useCredential(let user, let password) = answer else { return nil }
            let text = Data("\(user):\(password)".utf8).base64EncodedString()
            return "Authorization: Basic \(text)"
        } catch {
            Log.logger.warning("\(error)")
            return nil
        }
    }

    private func receive(
        _ file: ExtensionURLDownload,
        _ fields: [String],
        _ container: Container,
        _ stager: Stager
    ) async throws(StageError) -> FilePath {
        let transfer = FileTransfer(
            url: file.url,
            size: ByteCount(file.fileSize),
            fields: file.headers.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value)" }
                + fields,
            trustedURLs: manifestURLs,
            priority: file.priority
        )
        let directory: Directory
        do throws(FileError) {
            directory = try Directory.make(
                request.scratch,
                permissions: FilePermissions(rawValue: 0o700)
            )
        } catch {
            throw .container(.file(error))
        }
        return try await stager.fetch(
            transfer,
            keepingIn: container,
            to: directory,
            as: "download"
        )
    }
}

/// The outcome of a file that an extension asked for.
struct FileReport: Codable {
    var identifier: String
    var url: String
    var size: ByteCount
    var isEssential: Bool
    var outcome = PackReport.Outcome.failed
    var error: FailureReport?

    init(_ file: ExtensionURLDownload) {
        identifier = file.identifier
        url = file.url
        size = ByteCount(file.fileSize)
        isEssential = file.isEssential
    }

    mutating func fail(_ failure: CommandFailure) {
        outcome = .failed
        error = FailureReport(failure)
    }
}

/// Runs `body` and cancels its task when the time is up; `nil` stands for no limit.
private func withTimeLimit<Value: Sendable>(
    _ time: Duration?,
    _ body: @escaping @Sendable () async -> Value
) async -> Value {
    guard let time else { return await body() }
    return await withTaskGroup(of: Value?.self) { group in
        group.addTask { await body() }
        group.addTask {
            // Cancelled: the body ended in time.
            try? await Task.sleep(for: time)
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
    /// The number that Apple's `BAErrorCode` has for something like it: the download has failed.
    var backgroundAssetsCode: Int {
        switch self {
        case .transfer(let error) where error.isAboutDomains: 202
        case .unknownPack: 113
        default: 103
        }
    }
}

extension TransferError {
    /// Whether a host was not one that content may come from.
    fileprivate var isAboutDomains: Bool {
        if case .unacceptable(_, .domain) = self { true } else { false }
    }
}
