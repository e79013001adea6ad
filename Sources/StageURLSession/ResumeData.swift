import Foundation
import StageControl

/// Resume data of a background download: the request, and the daemon's token for the partial file.
///
/// Opaque to applications, which may store it indefinitely and across restarts; only the daemon knows whether the
/// partial file still exists.
struct ResumeData: Codable, Equatable {
    /// Version of the format.
    var version = 1
    /// Request of the earlier task.
    var request: TransferRequest
    /// Token by which another task resumes the download.
    var token: String
    /// `false` if the request neither sends nor stores cookies, which the daemon does not know.
    var handlesCookies: Bool?

    /// Creates the data from the request and the daemon's token.
    init(_ request: TransferRequest, token: String, handlesCookies: Bool) {
        self.request = request
        self.token = token
        self.handlesCookies = handlesCookies
    }

    /// Decodes data that an application has stored; `nil` if it is not resume data of this module.
    init?(_ data: Data) {
        // Any decoding error means that it is not resume data.
        guard let value = try? ControlFormat.decode(ResumeData.self, from: data),
            value.version == 1
        else { return nil }
        self = value
    }

    /// Encoded form for the application; `nil` if the request cannot be encoded.
    var data: Data? {
        // The request was encoded before, when it was sent to the daemon.
        try? ControlFormat.encode(self)
    }

    /// The request of a task that resumes the download; its token is that of the earlier task.
    var resumed: TransferRequest {
        var request = request
        request.resumeToken = token
        request.isSuspended = nil
        return request
    }
}
