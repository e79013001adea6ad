import Foundation
import FoundationNetworking
import StageControl
import StageModel
import StageSystem
import StageTransfer

/// A request of a session in this process, in the form in which it is sent.
struct ForegroundRequest {
    /// The request, without its body.
    var request: URLRequest
    /// Value of the `Authorization` field that answers a challenge.
    var authorization: String?
    /// `true` if the request has the body of the task.
    var hasBody: Bool
    /// `true` if a redirect has left the origin of the first request, to which the session's credentials belong.
    var hasLeftOrigin = false
    /// Further fields, which make the request conditional on the cached response.
    var conditions: [String] = []

    /// Fields that belong to an origin.
    static let credentials: Set<String> = [
        "authorization", "cookie", "host", "proxy-authorization",
    ]
    /// Methods of requests without a body.
    static let bodyless: Set<String> = ["GET", "HEAD", "TRACE"]

    /// Returns the request with the fields that caching depends on.
    func effective(_ rules: URLSessionConfiguration) -> URLRequest {
        var effective = request
        effective.allHTTPHeaderFields = request.fields(under: rules)
        if let authorization {
            effective.setValue(authorization, forHTTPHeaderField: "Authorization")
        }
        return effective
    }

    /// Method in capitals; an upload without a method is a POST.
    var method: String { request.httpMethod ?? "GET" }

    /// Returns the header fields, each as one line, with those of the session's configuration.
    func fields(_ rules: URLSessionConfiguration) -> [String] {
        var fields = request.fields(
            under: rules,
            leavingOut: hasLeftOrigin ? Self.credentials : []
        )
        if let authorization {
            fields = fields.filter { $0.key.lowercased() != "authorization" }
            fields["Authorization"] = authorization
        }
        let lines = fields.filter { !RequestRules.framing.contains($0.key.lowercased()) }
            .sorted { $0.key < $1.key }
            // libcurl removes a field that ends with the colon, and sends an empty one for a semicolon.
            .map { $0.value.isEmpty ? "\($0.key);" : "\($0.key): \($0.value)" }
        return lines + conditions
    }

    /// Returns whether a redirect to another request leaves the origin, and drops the credentials if so.
    mutating func leavesOrigin(for next: URLRequest) -> Bool {
        guard !next.hasSameOrigin(as: request) else { return false }
        authorization = nil
        hasLeftOrigin = true
        return true
    }

    /// Redirects the request to another URL.
    mutating func redirect(to url: String) {
        var next = request
        next.url = URL(string: url)
        if leavesOrigin(for: next) {
            for name in Self.credentials { next.setValue(nil, forHTTPHeaderField: name) }
        }
        request = next
    }

    /// Returns the reason why a request cannot be sent; `nil` if it can.
    static func problem(of request: URLRequest, hasBody: Bool) -> URLError? {
        if request.url?.isFileURL == true { return nil }
        let text = request.url?.absoluteURL.absoluteString ?? ""
        do throws(ValueError) {
            _ = try URLReference(text).checkOrigin()
        } catch {
            return URLError(.unsupportedURL, reason: "\(error)", failing: request.url)
        }
        guard hasBody, bodyless.contains(request.httpMethod ?? "GET") else {
            return nil
        }
        let reason = "a \(request.httpMethod ?? "GET") request has no body: set 'httpMethod'"
        return URLError(.dataLengthExceedsMaximum, reason: reason, failing: request.url)
    }
}

extension URLRequest {
    /// `true` if the request has a body.
    var hasBody: Bool { httpBodyStream != nil || httpBody.map { !$0.isEmpty } ?? false }

    /// Returns the request that follows a redirect; credentials, those of the URL included, stay with their origin.
    func following(_ redirection: Redirection) -> URLRequest? {
        var target = URLReference(redirection.url)
        if redirection.isSameOrigin, let own = self.url?.absoluteURL.absoluteString {
            target = target.withUser(of: URLReference(own))
        }
        guard let url = URL(string: target.text) else { return nil }
        var next = self
        next.url = url
        next.httpMethod = redirection.method
        if !redirection.keepsBody {
            next.httpBody = nil
            next.httpBodyStream = nil
            next.setValue(nil, forHTTPHeaderField: "Content-Type")
        }
        if !redirection.isSameOrigin {
            for name in ForegroundRequest.credentials {
                next.setValue(nil, forHTTPHeaderField: name)
            }
        }
        return next
    }
}

extension URLError {
    /// Creates an error with a description and the URL that failed.
    init(_ code: URLError.Code, reason: String, failing url: URL?) {
        let info = url.map { [NSURLErrorFailingURLErrorKey: $0] } ?? [:]
        self.init(code, reason: reason, userInfo: info)
    }

    /// Creates the error for a response with an error status, for sessions whose configuration requires one.
    init(refusedWith status: Int, by url: String) {
        let reason = "the server responded with status \(status)"
        let failure = TransferFailure(.refused, reason: reason, status: status)
        self.init(failure, url: url, resumeData: nil)
    }

    /// Creates the error of a failed transfer; file errors concern the target of a download, or the body of a
    /// request.
    init(_ error: TransferError, failing url: URL?, isDownload: Bool = false) {
        if case .refused(let url, let status, _) = error {
            self.init(refusedWith: status, by: url)
            return
        }
        let code: URLError.Code =
            switch error {
            case .unreachable(_, let fault, _): fault.code
            case .refused, .captivePortal: .badServerResponse
            case .wrongDigest: .cannotDecodeRawData
            case .unacceptable(_, .redirects): .httpTooManyRedirects
            case .unacceptable(_, .redirect): .redirectToNonExistentLocation
            case .unacceptable(_, .undecodable): .cannotDecodeContentData
            case .unacceptable(_, .answer), .unacceptable(_, .contentEncoding): .badServerResponse
            case .unacceptable: .unsupportedURL
            case .untrusted(_, .notYetValid, _): .serverCertificateNotYetValid
            case .untrusted(_, .expired, _): .serverCertificateHasBadDate
            case .untrusted: .serverCertificateUntrusted
            // The file of a request's body may become shorter while it is sent.
            case .wrongSize: isDownload ? .badServerResponse : .cannotOpenFile
            case .outOfSpace, .storage: isDownload ? .cannotWriteToFile : .cannotOpenFile
            case .cancelled: .cancelled
            }
        self.init(code, reason: "\(error)", failing: url)
    }
}

extension TransferError.ConnectionFault {
    /// The code of the fault, which is the same at a proxy.
    fileprivate var code: URLError.Code {
        switch self {
        // A machine with a default route may lack those of one of the IP versions.
        case .nameLookup:
            NetworkRoute.hasDefault ? .cannotFindHost : .notConnectedToInternet
        case .noRoute:
            NetworkRoute.hasDefault ? .cannotConnectToHost : .notConnectedToInternet
        case .connect: .cannotConnectToHost
        case .handshake: .secureConnectionFailed
        case .timeout: .timedOut
        case .lost: .networkConnectionLost
        case .proxy(let fault): fault.code
        }
    }
}

extension URLRequest {
    /// Returns whether both requests have the same origin (RFC 6454, section 5).
    fileprivate func hasSameOrigin(as other: URLRequest) -> Bool {
        func origin(_ request: URLRequest) -> URLOrigin? {
            request.url.flatMap { URLReference($0.absoluteURL.absoluteString).origin }
        }
        return origin(self) != nil && origin(self) == origin(other)
    }
}
