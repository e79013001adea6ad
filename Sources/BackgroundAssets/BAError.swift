public import Foundation

// swift-format-ignore: AlwaysUseLowerCamelCase
/// The error domain of this framework.
public let BAErrorDomain = "BAErrorDomain"

/// The reason why a download failed or was rejected, with the raw values of Apple's framework.
@nonexhaustive(warn)
public enum BAErrorCode: Int, Hashable, Sendable {
    /// The download is invalid.
    case downloadInvalid = 0
    /// Extensions must not call this.
    case callFromExtensionNotAllowed = 50
    /// Background processes must not call this.
    case callFromInactiveProcessNotAllowed = 51
    /// The caller is not accepted: its application group is not known, or it may not use the daemon.
    case callerConnectionNotAccepted = 55
    /// The connection to the daemon could not be made, or broke.
    case callerConnectionInvalid = 56
    /// The download is already scheduled.
    case downloadAlreadyScheduled = 100
    /// The download was not scheduled.
    case downloadNotScheduled = 101
    /// The download could not be started, or its content could not be stored.
    case downloadFailedToStart = 102
    /// The download has failed.
    case downloadAlreadyFailed = 103
    /// Downloads of this request cannot be essential.
    case downloadEssentialDownloadNotPermitted = 109
    /// Background downloads are disabled at present.
    case downloadBackgroundActivityProhibited = 111
    /// The download exceeds the allowance.
    case downloadWouldExceedAllowance = 112
    /// The download does not exist.
    case downloadDoesNotExist = 113
    /// The file's host is not in the allow list.
    case sessionDownloadDisallowedByDomain = 202
    /// There is no allowance for the download.
    case sessionDownloadDisallowedByAllowance = 203
    /// The file was larger than the remaining allowance.
    case sessionDownloadAllowanceExceeded = 204
    /// The download is not permitted before the first launch of the application.
    case sessionDownloadNotPermittedBeforeAppLaunch = 206
}

/// An error of this framework.
///
/// Apple's is an `NSError` in the domain ``BAErrorDomain``. On Linux, `error as NSError` has the same domain and code,
/// and `(error as? BAError)?.code` returns the code.
public struct BAError: Error, Hashable, Sendable {
    /// The numeric code, of ``BAErrorCode`` or of a later protocol version, or ``exclusiveControlNotAcquired``.
    public var errorCode: Int
    /// The reason, as a sentence fragment.
    public var message: String

    /// Creates an error from its code and reason.
    public init(errorCode: Int, message: String) {
        self.errorCode = errorCode
        self.message = message
    }

    init(_ code: BAErrorCode, message: String) {
        self.init(errorCode: code.rawValue, message: message)
    }

    /// The code; `nil` if it is unknown.
    public var code: BAErrorCode? { BAErrorCode(rawValue: errorCode) }
}

extension BAError {
    /// The ``errorCode`` of a call of `withExclusiveControl` whose date has passed.
    ///
    /// Apple documents no code for this. The number is none of ``BAErrorCode``, so that programs do not take it for
    /// another failure.
    public static let exclusiveControlNotAcquired = 1000
}

extension BAError: CustomNSError {
    /// The error domain of this framework.
    public static var errorDomain: String { BAErrorDomain }

    /// The reason as the localized description, which `error as NSError` takes from here alone.
    public var errorUserInfo: [String: Any] { [NSLocalizedDescriptionKey: message] }
}

extension BAError: LocalizedError, CustomStringConvertible {
    /// The reason, as a sentence fragment.
    public var errorDescription: String? { message }

    /// The reason and the code.
    public var description: String { "\(message) (\(errorCode))" }
}
