public import Foundation
import StageControl

// swift-format-ignore: AlwaysUseLowerCamelCase
/// The key of a failed download's resume data in the `userInfo` of its error.
public let NSURLSessionDownloadTaskResumeData = "NSURLSessionDownloadTaskResumeData"

// swift-format-ignore: AlwaysUseLowerCamelCase
/// A number of bytes that nobody knows.
public let NSURLSessionTransferSizeUnknown: Int64 = -1

// swift-format-ignore: AlwaysUseLowerCamelCase
/// The key of ``Foundation/URLError/networkUnavailableReason`` in the `userInfo` of an error.
public let NSURLErrorNetworkUnavailableReasonKey = "NSURLErrorNetworkUnavailableReasonKey"

extension URLError {
    /// What ``URLSession/downloadTask(withResumeData:)`` goes on with, where a download can.
    public var downloadTaskResumeData: Data? {
        userInfo[NSURLSessionDownloadTaskResumeData] as? Data
    }

    /// A reason why a system cancels a background task.
    public enum BackgroundTaskCancelledReason: Int, Sendable {
        /// The user has ended the application by force.
        case userForceQuitApplication = 0
        /// Updates in the background are switched off.
        case backgroundUpdatesDisabled = 1
        /// The system is short of resources.
        case insufficientSystemResources = 2
    }

    /// A reason why a network is not to be used.
    public enum NetworkUnavailableReason: Int, Sendable {
        /// The network is cellular.
        case cellular = 0
        /// The network costs money by the byte.
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
    /// It is `nil` in errors of this module's sessions: a task waits for a network that it may use, and
    /// ``URLSessionTask/holds`` says so.
    public var networkUnavailableReason: NetworkUnavailableReason? {
        let value = userInfo[NSURLErrorNetworkUnavailableReasonKey] as? Int
        return value.flatMap(NetworkUnavailableReason.init)
    }

    /// Makes an error with its reason in words.
    init(_ code: URLError.Code, reason: String, userInfo: [String: Any] = [:]) {
        var userInfo = userInfo
        userInfo[NSLocalizedDescriptionKey] = reason
        self.init(code, userInfo: userInfo)
    }

    /// Makes the error of a task that failed.
    init(_ failure: TransferFailure, url: String, resumeData: Data?) {
        var userInfo: [String: Any] = [:]
        if let url = URL(string: url) { userInfo[NSURLErrorFailingURLErrorKey] = url }
        if let resumeData { userInfo[NSURLSessionDownloadTaskResumeData] = resumeData }
        self.init(Self.code(failure), reason: failure.reason, userInfo: userInfo)
    }

    /// Makes the error of something that the daemon refused, or was not there for.
    ///
    /// What it refuses of a download that was to go on is what the download would have gone on with.
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
