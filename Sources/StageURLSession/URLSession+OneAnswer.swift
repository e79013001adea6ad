public import Foundation
public import FoundationNetworking

// Further calls of Apple's class for one answer, which no process but this one could wait for: see URLSession+Forbidden.
extension URLSession {
    /// Refuses: a background session has no data tasks.
    @available(
        *,
        unavailable,
        message:
            "use downloadTask(with:) of a background session, or FoundationNetworking.URLSession"
    )
    public func dataTask(
        with url: URL,
        completionHandler: @escaping @Sendable (Data?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionDataTask { preconditionFailure("unavailable") }

    /// Refuses: a background session has no data tasks.
    @available(
        *,
        unavailable,
        message:
            "use downloadTask(with:) of a background session, or FoundationNetworking.URLSession"
    )
    public func dataTask(
        with request: URLRequest,
        completionHandler: @escaping @Sendable (Data?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionDataTask { preconditionFailure("unavailable") }

    /// Refuses: who waits for a call does not outlive the process.
    @available(*, unavailable, message: "use uploadTask(with:fromFile:) and the delegate")
    public func uploadTask(
        with request: URLRequest,
        from data: Data?,
        completionHandler: @escaping @Sendable (Data?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionUploadTask { preconditionFailure("unavailable") }

    /// Refuses: who waits for a call does not outlive the process.
    @available(*, unavailable, message: "create the upload again: uploadTask(with:fromFile:)")
    public func uploadTask(
        withResumeData data: Data,
        completionHandler: @escaping @Sendable (Data?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionUploadTask { preconditionFailure("unavailable") }

    /// Refuses: who waits for a call does not outlive the process.
    @available(
        *,
        unavailable,
        message:
            "use downloadTask(with:) of a background session, or FoundationNetworking.URLSession"
    )
    public func data(
        from url: URL,
        delegate: (any URLSessionTaskDelegate)?
    ) async throws -> (Data, URLResponse) { preconditionFailure("unavailable") }

    /// Refuses: who waits for a call does not outlive the process.
    @available(
        *,
        unavailable,
        message:
            "use downloadTask(with:) of a background session, or FoundationNetworking.URLSession"
    )
    public func data(
        for request: URLRequest,
        delegate: (any URLSessionTaskDelegate)?
    ) async throws -> (Data, URLResponse) { preconditionFailure("unavailable") }

    /// Refuses: who waits for a call does not outlive the process.
    @available(*, unavailable, message: "use downloadTask(with:) and the delegate")
    public func download(
        from url: URL,
        delegate: (any URLSessionTaskDelegate)?
    ) async throws -> (URL, URLResponse) { preconditionFailure("unavailable") }

    /// Refuses: who waits for a call does not outlive the process.
    @available(*, unavailable, message: "use downloadTask(with:) and the delegate")
    public func download(
        for request: URLRequest,
        delegate: (any URLSessionTaskDelegate)?
    ) async throws -> (URL, URLResponse) { preconditionFailure("unavailable") }

    /// Refuses: who waits for a call does not outlive the process.
    @available(*, unavailable, message: "use downloadTask(withResumeData:) and the delegate")
    public func download(
        resumeFrom data: Data,
        delegate: (any URLSessionTaskDelegate)? = nil
    ) async throws -> (URL, URLResponse) { preconditionFailure("unavailable") }

    /// Refuses: who waits for a call does not outlive the process.
    @available(*, unavailable, message: "use uploadTask(with:fromFile:) and the delegate")
    public func upload(
        for request: URLRequest,
        fromFile file: URL,
        delegate: (any URLSessionTaskDelegate)?
    ) async throws -> (Data, URLResponse) { preconditionFailure("unavailable") }

    /// Refuses: who waits for a call does not outlive the process.
    @available(*, unavailable, message: "use uploadTask(with:fromFile:) and the delegate")
    public func upload(
        for request: URLRequest,
        from data: Data,
        delegate: (any URLSessionTaskDelegate)? = nil
    ) async throws -> (Data, URLResponse) { preconditionFailure("unavailable") }
}
