public import Foundation
public import FoundationNetworking

// Methods of Apple's class that no session has here: calls do not compile, and the compiler names the alternative.
extension URLSession {
    /// Unavailable: the daemon copies an upload's file and resumes the upload by itself.
    @available(*, unavailable, message: "create the upload again: uploadTask(with:fromFile:)")
    public func uploadTask(withResumeData data: Data) -> URLSessionUploadTask {
        preconditionFailure("unavailable")
    }

    /// Unavailable: the daemon copies an upload's file and resumes the upload by itself.
    @available(*, unavailable, message: "create the upload again: uploadTask(with:fromFile:)")
    public func uploadTask(
        withResumeData data: Data,
        completionHandler: @escaping @Sendable (Data?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionUploadTask { preconditionFailure("unavailable") }
}
