import Foundation
import StageControl

/// What `cancel(byProducingResumeData:)` hands out: the request, and the daemon's token for what was
/// received.
///
/// Opaque to applications. It can be kept for as long as one likes and over restarts; whether what was
/// received is still there is the daemon's to say.
struct ResumeData: Codable, Equatable {
    /// The version of the format.
    var version = 1
    /// What was asked for.
    var request: TransferRequest
    /// The token by which another task goes on.
    var token: String

    /// Creates the data from what was asked for and the daemon's token.
    init(_ request: TransferRequest, token: String) {
        self.request = request
        self.token = token
    }

    /// Reads what an application has kept; `nil` if it is nothing of this module's.
    init?(_ data: Data) {
        // Whatever is wrong with it, it is not resume data.
        guard let value = try? ControlFormat.decode(ResumeData.self, from: data),
            value.version == 1
        else { return nil }
        self = value
    }

    /// The bytes that an application keeps; `nil` if the request cannot be written.
    var data: Data? {
        // A request that the daemon has taken in was written once already.
        try? ControlFormat.encode(self)
    }

    /// The request that goes on with what was received; its token is that of the earlier task.
    var resumed: TransferRequest {
        var request = request
        request.resumeToken = token
        request.isSuspended = nil
        return request
    }
}
