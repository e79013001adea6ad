import StageModel
import StageSystem

extension TransferEngine {
    /// Sends `DELETE` for the upload resource of a cancelled upload, as the HTTP draft and the termination extension
    /// of tus define it.
    ///
    /// Best effort: a server that does not support the request, or does not respond in time, keeps the resource. The
    /// request goes to the origin of `request` only, and only if that origin itself named the resource; redirects are
    /// not followed. Nothing is sent for a resource that may be complete, since the server may have processed it.
    /// While the cancelled request still locks the resource (423), the request is repeated every second.
    ///
    /// - Parameters:
    ///   - resource: The upload resource.
    ///   - request: The upload, whose URL, header fields and security settings apply.
    ///   - timeout: Time limit for all of this, the wait for a connection included.
    /// - Returns: The status of the last response; `nil` if there was none or nothing was sent.
    @discardableResult
    public func delete(
        _ resource: UploadResource,
        of request: UploadRequest,
        timeout: Duration
    ) async -> Int? {
        guard resource.mayBeDeleted, let version = resource.uploadProtocol.versionField else {
            return nil
        }
        return await delete(resource.url, fields: [version], of: request, timeout: timeout)
    }

    /// Asks the server to abort a multipart upload and delete its parts, by `UploadParts.abortURL`.
    ///
    /// Best effort as ``delete(_:of:timeout:)``, and for the origin of `request` only.
    ///
    /// - Returns: The status of the response; `nil` if there was none or nothing was sent.
    @discardableResult
    public func abortParts(of request: UploadRequest, timeout: Duration) async -> Int? {
        guard let url = request.parts?.abortURL else { return nil }
        return await delete(url, fields: [], of: request, timeout: timeout)
    }

    private func delete(
        _ text: String,
        fields: [String],
        of request: UploadRequest,
        timeout: Duration
    ) async -> Int? {
        // An unreadable URL is not a resource of this upload.
        guard let target = try? TransferURL(request.url), let url = try? TransferURL(text),
            url.hasSameOrigin(as: target),
            (try? RedirectRules.check(url, against: request.allowedDomains)) != nil
        else { return nil }
        let deletion = ExchangeRequest(
            url: url,
            method: "DELETE",
            fields: request.fieldsOfResource + fields,
            // Transfers come first.
            priority: .min,
            user: request.user,
            timeout: timeout,
            requiresNewestTLS: request.requiresNewestTLS
        )
        return await perform(deletion, timeout: timeout)
    }

    private func perform(_ deletion: ExchangeRequest, timeout: Duration) async -> Int? {
        await withTaskGroup(of: Int?.self) { group in
            group.addTask {
                var status = await self.status(of: deletion)
                while status == 423, (try? await Task.sleep(for: .seconds(1))) != nil {
                    status = await self.status(of: deletion)
                }
                return status
            }
            group.addTask {
                // Cancelled once the response has arrived.
                try? await Task.sleep(for: timeout.sleepable, clock: .suspending)
                return nil
            }
            defer { group.cancelAll() }
            return await group.next() ?? nil
        }
    }

    private func status(of request: ExchangeRequest) async -> Int? {
        let receiver = StatusReceiver()
        _ = await perform(Exchange(request, receiver: receiver, now: activityClock.now))
        return receiver.status
    }
}

extension UploadResource {
    /// `true` if the resource may be deleted when its upload is cancelled: the request's origin named it, and no
    /// server can have processed the body.
    package var mayBeDeleted: Bool { isNamedByOrigin && !mayBeComplete }
}

extension UploadProtocol {
    /// Header field by which requests to an upload resource name the protocol; `nil` for one without resources.
    var versionField: String? {
        switch self {
        case .plain, .presignedParts: nil
        case .resumable: "Upload-Draft-Interop-Version: \(ResumableUpload.version)"
        case .tus: "Tus-Resumable: \(ResumableUpload.tusVersion)"
        }
    }
}

/// Keeps the status of one response.
private final class StatusReceiver: ExchangeReceiver {
    private(set) var status: Int?

    func wait() {}

    func connect() {}

    func receive(_ head: ResponseHead) -> BodyUse {
        status = head.status
        return .skip
    }

    func receive(_ body: Span<UInt8>) -> Bool { true }
}
