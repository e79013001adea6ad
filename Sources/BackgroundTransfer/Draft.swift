import Foundation
import FoundationNetworking
import StageControl
import StageModel

/// A task before it is made: what is asked for, and why that cannot be, if it cannot.
struct Draft {
    /// What is asked for.
    var request: TransferRequest
    /// Why the task fails.
    var problem: URLError?

    /// Drafts a download.
    init(download request: URLRequest, rules: URLSessionConfiguration) {
        self.init(.download, request)
        if request.httpBody != nil || request.httpBodyStream != nil {
            problem = URLError(.unsupportedURL, reason: "a download in the background has no body")
        }
        self.request.acceptsErrorResponses = rules.acceptsErrorResponses ? true : nil
    }

    /// Drafts an upload; the body of the request counts for nothing.
    init(upload request: URLRequest, file: URL) {
        self.init(.upload, request)
        self.request.file = file.path
        guard problem == nil else { return }
        guard file.isFileURL, FileManager.default.isReadableFile(atPath: file.path) else {
            let reason = "the file to upload cannot be read: '\(file.path)'"
            problem = URLError(.fileDoesNotExist, reason: reason)
            return
        }
    }

    /// Drafts a download that goes on with what an earlier one received.
    init(resumeData data: Data) {
        let token = UUID().uuidString
        if let resumed = ResumeData(data) {
            request = resumed.request(token: token)
        } else {
            request = TransferRequest(token: token, kind: .download, url: "")
            problem = URLError(.cannotDecodeRawData, reason: "this is no resume data")
        }
    }

    private init(
        _ kind: TransferRequest.Kind,
        _ request: URLRequest
    ) {
        let url = request.url?.absoluteURL
        self.request = TransferRequest(
            token: UUID().uuidString,
            kind: kind,
            url: url?.absoluteString ?? ""
        )
        let method = request.httpMethod ?? "GET"
        // What URLRequest has by itself is nobody's choice.
        self.request.method = kind == .upload && method == "GET" ? "POST" : method
        self.request.headers = request.allHTTPHeaderFields
        self.request.allowsExpensiveNetworkAccess = request.allowsCellularAccess ? nil : false
        if !["http", "https"].contains(url?.scheme?.lowercased()) || url?.host == nil {
            problem = URLError(
                .unsupportedURL,
                reason: "expected an http or https URL, found '\(self.request.url)'"
            )
        }
    }
}
