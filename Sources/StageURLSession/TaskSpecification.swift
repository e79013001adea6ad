import Foundation
import FoundationNetworking
import StageControl
import StageModel
import StageTransfer

/// Request for a new task, with the reason why the task must fail, if there is one.
struct TaskSpecification {
    /// The request to the daemon, without a token.
    var request: TransferRequest
    /// Error that the task fails with; `nil` for a valid request.
    var problem: URLError?
    /// The application's request.
    var original: URLRequest?

    /// Creates a request for a download.
    init(download request: URLRequest, rules: URLSessionConfiguration) {
        self.init(kind: .download, request: request)
        apply(rules, to: request)
        if request.httpBody != nil || request.httpBodyStream != nil {
            problem = URLError(.unsupportedURL, reason: "a download in the background has no body")
        }
        self.request.acceptsErrorResponses = !rules.failsOnErrorStatus
        self.request.isIdempotent = rules.requestsAreIdempotent ? true : nil
    }

    /// Creates a request for an upload; the body of `request` is ignored.
    init(upload request: URLRequest, file: URL, rules: URLSessionConfiguration) {
        self.init(kind: .upload, request: request)
        apply(rules, to: request)
        self.request.acceptsErrorResponses = !rules.failsOnErrorStatus
        self.request.isIdempotent = rules.requestsAreIdempotent ? true : nil
        self.request.file = file.path
        guard problem == nil else { return }
        guard file.isFileURL, FileManager.default.isReadableFile(atPath: file.path) else {
            let reason = "the file to upload cannot be read: '\(file.path)'"
            problem = URLError(.fileDoesNotExist, reason: reason)
            return
        }
    }

    /// Adds the fields for the session's rules about caches and cookies.
    private mutating func apply(_ rules: URLSessionConfiguration, to original: URLRequest) {
        let own = original.cachePolicy
        let policy = own == .useProtocolCachePolicy ? rules.requestCachePolicy : own
        switch policy {
        case .reloadIgnoringLocalAndRemoteCacheData, .reloadRevalidatingCacheData:
            addField("Cache-Control", value: "no-cache")
        case .returnCacheDataDontLoad:
            problem = URLError(.resourceUnavailable, reason: "there is no cache")
        default: break
        }
        guard rules.httpShouldSetCookies, original.httpShouldHandleCookies, let url = original.url,
            let cookies = rules.httpCookieStorage?.cookiesToSend(to: url), !cookies.isEmpty
        else { return }
        for (name, value) in HTTPCookie.requestHeaderFields(with: cookies) {
            addField(name, value: value)
        }
    }

    private mutating func addField(_ name: String, value: String) {
        let names = (request.headers ?? [:]).keys.map { $0.lowercased() }
        guard !names.contains(name.lowercased()) else { return }
        request.headers = (request.headers ?? [:]).merging([name: value]) { own, _ in own }
    }

    /// Returns whether the daemon sets a field by itself: one that frames the body, or `Accept-Encoding`.
    ///
    /// It refuses requests that have such a field.
    static func isSetByDaemon(_ name: String) -> Bool {
        let name = name.lowercased()
        return name == "accept-encoding" || RequestRules.framing.contains(name)
    }

    /// Returns whether a field is a `Host` that says the same as the URL.
    private static func isOwnHost(_ name: String, value: String, of url: URL?) -> Bool {
        guard name.lowercased() == "host", let url else { return false }
        let origin = URLReference(url.absoluteString).origin
        return origin != nil && origin == URLReference("\(origin?.scheme ?? "")://\(value)").origin
    }

    /// Creates a request for a download that resumes an earlier one.
    init(resumeData data: Data, rules: URLSessionConfiguration) {
        if let resumed = ResumeData(data) {
            request = resumed.resumed
            let isKnown = request.size != nil || request.sha256 != nil
            request.acceptsErrorResponses = isKnown ? nil : !rules.failsOnErrorStatus
            if resumed.handlesCookies == false {
                original = URLRequest(request)
                original?.httpShouldHandleCookies = false
            }
            if let original = original ?? URL(string: request.url).map({ URLRequest(url: $0) }) {
                apply(rules, to: original)
            }
        } else {
            request = TransferRequest(token: "", kind: .download, url: "")
            problem = URLError(.cannotDecodeRawData, reason: "the data is not resume data")
        }
    }

    private init(
        kind: TransferRequest.Kind,
        request: URLRequest
    ) {
        original = request
        let url = request.url?.absoluteURL
        self.request = TransferRequest(
            token: "",
            kind: kind,
            url: url?.absoluteString ?? ""
        )
        let method = request.httpMethod ?? "GET"
        // `GET` is the default of `URLRequest`, which every upload request has whose method was not set.
        self.request.method = kind == .upload && method == "GET" ? "POST" : method
        self.request.headers = request.allHTTPHeaderFields?
            .filter {
                !Self.isSetByDaemon($0.key) && !Self.isOwnHost($0.key, value: $0.value, of: url)
            }
        self.request.allowsExpensiveNetworkAccess = request.allowsCellularAccess ? nil : false
        do throws(ValueError) {
            _ = try URLReference(self.request.url).checkOrigin()
        } catch {
            problem = URLError(.unsupportedURL, reason: "\(error)")
        }
    }
}
