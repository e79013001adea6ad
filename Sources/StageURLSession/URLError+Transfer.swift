public import Foundation
import StageControl

// swift-format-ignore: AlwaysUseLowerCamelCase
/// Key of a failed download's resume data in the `userInfo` of its error.
public let NSURLSessionDownloadTaskResumeData = "NSURLSessionDownloadTaskResumeData"

// swift-format-ignore: AlwaysUseLowerCamelCase
/// An unknown number of bytes.
public let NSURLSessionTransferSizeUnknown: Int64 = -1

// swift-format-ignore: AlwaysUseLowerCamelCase
/// Key of `URLError.networkUnavailableReason` in the `userInfo` of an error.
public let NSURLErrorNetworkUnavailableReasonKey = "NSURLErrorNetworkUnavailableReasonKey"

extension URLError {
    /// Resume data for ``URLSession/downloadTask(withResumeData:)``, if the download can be resumed.
    public var downloadTaskResumeData: Data? {
        userInfo[NSURLSessionDownloadTaskResumeData] as? Data
    }

    /// Returns the error with resume data, or unchanged if there is none.
    func adding(resumeData: Data?) -> URLError {
        guard let resumeData else { return self }
        var info = userInfo
        info[NSURLSessionDownloadTaskResumeData] = resumeData
        return URLError(code, userInfo: info)
    }

    /// Reason why a system cancels a background task.
    @nonexhaustive(warn)
    public enum BackgroundTaskCancelledReason: Int, Sendable {
        /// The user has force-quit the application.
        case userForceQuitApplication = 0
        /// Background updates are disabled.
        case backgroundUpdatesDisabled = 1
        /// The system lacks resources.
        case insufficientSystemResources = 2
    }

    /// Reason why a network may not be used.
    @nonexhaustive(warn)
    public enum NetworkUnavailableReason: Int, Sendable {
        /// The network is cellular.
        case cellular = 0
        /// The network is metered.
        case expensive = 1
        /// The network is in low data mode.
        case constrained = 2
    }

    /// The reason under `NSURLErrorBackgroundTaskCancelledReasonKey`.
    ///
    /// It is `nil` in errors of this module's sessions: the daemon cancels no task by itself.
    public var backgroundTaskCancelledReason: BackgroundTaskCancelledReason? {
        let value = userInfo[NSURLErrorBackgroundTaskCancelledReasonKey] as? Int
        return value.flatMap(BackgroundTaskCancelledReason.init)
    }

    /// The reason under ``NSURLErrorNetworkUnavailableReasonKey``.
    ///
    /// It is `nil` in errors of this module's sessions: a task waits for a suitable network, as
    /// ``URLSessionTask/pendingReasons`` shows.
    public var networkUnavailableReason: NetworkUnavailableReason? {
        let value = userInfo[NSURLErrorNetworkUnavailableReasonKey] as? Int
        return value.flatMap(NetworkUnavailableReason.init)
    }

    /// Creates an error with a description.
    init(_ code: URLError.Code, reason: String, userInfo: [String: Any] = [:]) {
        var userInfo = userInfo
        userInfo[NSLocalizedDescriptionKey] = reason
        self.init(code, userInfo: userInfo)
    }

    /// Creates the error of a failed task.
    init(_ failure: TransferFailure, url: String, resumeData: Data?) {
        var userInfo: [String: Any] = [:]
        if let url = URL(string: url) { userInfo[NSURLErrorFailingURLErrorKey] = url }
        if let resumeData { userInfo[NSURLSessionDownloadTaskResumeData] = resumeData }
        self.init(Self.code(failure), reason: failure.reason, userInfo: userInfo)
    }

    /// Creates the error for a request that the daemon refused or did not receive.
    ///
    /// A daemon that refuses a download with resume data no longer has the partial file.
    init(of error: ControlError, resuming: Bool = false) {
        let code = Self.code(error)
        let isLost = resuming && code == .unsupportedURL
        self.init(isLost ? .cannotOpenFile : code, reason: error.description)
    }

    private static func code(_ failure: TransferFailure) -> URLError.Code {
        switch failure.kind {
        case .unreachable: .cannotConnectToHost
        case .timedOut: .timedOut
        case .refused:
            switch failure.status {
            case 401, 407: .userAuthenticationRequired
            case 403: .noPermissionsToReadFile
            case 404, 410: .fileDoesNotExist
            default: .badServerResponse
            }
        case .wrongContent: .cannotDecodeRawData
        case .untrusted: .serverCertificateUntrusted
        case .unacceptable: .unsupportedURL
        case .storage: .cannotWriteToFile
        case .cannotResume: .cannotOpenFile
        case .lost: .cannotOpenFile
        case .other: .unknown
        }
    }

    private static func code(_ error: ControlError) -> URLError.Code {
        guard case .refused(let refusal) = error else { return .backgroundSessionWasDisconnected }
        return switch refusal.code {
        case .malformed, .invalid: .unsupportedURL
        case .forbidden: .noPermissionsToReadFile
        case .notFound: .backgroundSessionWasDisconnected
        case .conflict: .backgroundSessionInUseByAnotherProcess
        case .quota, .storage: .cannotCreateFile
        case .tooLarge: .dataLengthExceedsMaximum
        case .unavailable: .backgroundSessionWasDisconnected
        }
    }
}
