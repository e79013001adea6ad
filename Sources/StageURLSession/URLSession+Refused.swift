public import Foundation
public import FoundationNetworking

// Calls of Apple's class that no session has here: they do not compile, and the compiler says what to do instead.
extension URLSession {
    /// Refuses: the daemon takes a copy of an upload's file and resumes the upload by itself.
    @available(*, unavailable, message: "create the upload again: uploadTask(with:fromFile:)")
    public func uploadTask(withResumeData data: Data) -> URLSessionUploadTask {
        preconditionFailure("unavailable")
    }

    /// Refuses: the daemon takes a copy of an upload's file and resumes the upload by itself.
    @available(*, unavailable, message: "create the upload again: uploadTask(with:fromFile:)")
    public func uploadTask(
        withResumeData data: Data,
        completionHandler: @escaping @Sendable (Data?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionUploadTask { preconditionFailure("unavailable") }
}
