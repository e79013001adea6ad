public import Foundation
public import FoundationNetworking

// What Apple's class has and background sessions refuse: there it raises an exception when it is called,
// here it does not compile, and the compiler says what to do instead. Sessions in this process have none of it, either.
extension URLSession {
    /// Refuses: a background session has no data tasks.
    @available(
        *,
        unavailable,
        message:
            "use downloadTask(with:) of a background session, or FoundationNetworking.URLSession"
    )
    public func dataTask(with url: URL) -> URLSessionDataTask { preconditionFailure("unavailable") }

    /// Refuses: a background session has no data tasks.
    @available(
        *,
        unavailable,
        message:
            "use downloadTask(with:) of a background session, or FoundationNetworking.URLSession"
    )
    public func dataTask(with request: URLRequest) -> URLSessionDataTask {
        preconditionFailure("unavailable")
    }

    /// Refuses: who waits for a call does not outlive the process.
    @available(*, unavailable, message: "use downloadTask(with:) and the delegate")
    public func downloadTask(
        with url: URL,
        completionHandler: @escaping @Sendable (URL?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionDownloadTask { preconditionFailure("unavailable") }

    /// Refuses: who waits for a call does not outlive the process.
    @available(*, unavailable, message: "use downloadTask(with:) and the delegate")
    public func downloadTask(
        with request: URLRequest,
        completionHandler: @escaping @Sendable (URL?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionDownloadTask { preconditionFailure("unavailable") }

    /// Refuses: who waits for a call does not outlive the process.
    @available(*, unavailable, message: "use downloadTask(withResumeData:) and the delegate")
    public func downloadTask(
        withResumeData data: Data,
        completionHandler: @escaping @Sendable (URL?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionDownloadTask { preconditionFailure("unavailable") }

    /// Refuses: who waits for a call does not outlive the process.
    @available(*, unavailable, message: "use uploadTask(with:fromFile:) and the delegate")
    public func uploadTask(
        with request: URLRequest,
        fromFile file: URL,
        completionHandler: @escaping @Sendable (Data?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionUploadTask { preconditionFailure("unavailable") }

    /// Refuses: what is in memory does not outlive the process.
    @available(*, unavailable, message: "use uploadTask(with:fromFile:)")
    public func uploadTask(with request: URLRequest, from data: Data) -> URLSessionUploadTask {
        preconditionFailure("unavailable")
    }

    /// Refuses: a stream does not outlive the process.
    @available(*, unavailable, message: "use uploadTask(with:fromFile:)")
    public func uploadTask(withStreamedRequest request: URLRequest) -> URLSessionUploadTask {
        preconditionFailure("unavailable")
    }

    /// Refuses: the daemon takes a copy of an upload's file, and begins it anew by itself.
    @available(*, unavailable, message: "create the upload again: uploadTask(with:fromFile:)")
    public func uploadTask(withResumeData data: Data) -> URLSessionUploadTask {
        preconditionFailure("unavailable")
    }

    /// Refuses: who waits for a call does not outlive the process.
    @available(
        *,
        unavailable,
        message:
            "use downloadTask(with:) of a background session, or FoundationNetworking.URLSession"
    )
    public func data(from url: URL) async throws -> (Data, URLResponse) {
        preconditionFailure("unavailable")
    }

    /// Refuses: who waits for a call does not outlive the process.
    @available(
        *,
        unavailable,
        message:
            "use downloadTask(with:) of a background session, or FoundationNetworking.URLSession"
    )
    public func data(for request: URLRequest) async throws -> (Data, URLResponse) {
        preconditionFailure("unavailable")
    }

    /// Refuses: who waits for a call does not outlive the process.
    @available(*, unavailable, message: "use downloadTask(with:) and the delegate")
    public func download(from url: URL) async throws -> (URL, URLResponse) {
        preconditionFailure("unavailable")
    }

    /// Refuses: who waits for a call does not outlive the process.
    @available(*, unavailable, message: "use downloadTask(with:) and the delegate")
    public func download(for request: URLRequest) async throws -> (URL, URLResponse) {
        preconditionFailure("unavailable")
    }

    /// Refuses: who waits for a call does not outlive the process.
    @available(*, unavailable, message: "use uploadTask(with:fromFile:) and the delegate")
    public func upload(
        for request: URLRequest,
        fromFile file: URL
    ) async throws -> (Data, URLResponse) { preconditionFailure("unavailable") }
}
