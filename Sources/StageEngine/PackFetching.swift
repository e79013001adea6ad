import Logging
import StageContainer
import StageModel
import StageTransfer

/// The requests for the objects of one pack.
struct PackFetching: Sendable {
    let stager: Stager
    let manifest: AcceptedManifest
    let pack: Pack
    let report: @Sendable (StagingEvent) -> Void
    /// `true` if failed requests are not repeated.
    var isTriedOnce = false

    /// Returns the URLs that a URL of the manifest resolves to, in order of preference.
    func mirrors(of url: String) -> [String] {
        manifest.manifest.urls(for: url, manifestURL: manifest.record.resolvedURL)
    }

    /// Returns a request for an object of the pack, or a part of one.
    func request(for mirrors: [String], limit: ByteCount) -> FetchRequest {
        var request = FetchRequest(mirrors: mirrors, limit: limit)
        request.expectedKind = .archive
        request.allowedDomains = stager.options.allowedDomains.map(AllowedDomains.init)
        request.priority = pack.priority
        request.isTriedOnce = isTriedOnce
        request.allowsPlainRedirects = manifest.isSigned
        request.report = { [report] event in StagingEvent(event).map(report) }
        return request
    }

    /// Logs that an object cannot be used, and others replace it.
    func log(_ error: StageError, as message: Logger.Message) {
        log("\(error)", as: message)
    }

    /// Logs the reason why an object cannot be used, and others replace it.
    func log(_ reason: String, as message: Logger.Message) {
        stager.logger.warning(
            message,
            metadata: ["pack.id": "\(pack.id)", "error": "\(reason)"]
        )
    }

    /// Performs a request.
    func fetch(_ request: FetchRequest) async throws(StageError) -> FetchedDocument {
        do throws(TransferError) {
            guard case .document(let document) = try await stager.engine.fetch(request) else {
                preconditionFailure("an unconditional request is answered with a document")
            }
            return document
        } catch {
            throw error.stageError
        }
    }
}

extension PackWork {
    /// The requests for the objects of the pack.
    var fetching: PackFetching {
        PackFetching(stager: stager, manifest: manifest, pack: pack, report: report)
    }

    /// Returns the URLs that a URL of the manifest resolves to, in order of preference.
    func mirrors(of url: String) -> [String] { fetching.mirrors(of: url) }
}
