public import Foundation

// swift-format-ignore: AlwaysUseLowerCamelCase
/// The domain of the errors of this framework.
public let BAErrorDomain = "BAErrorDomain"

/// Why a download failed or was refused, with the numbers of Apple's framework.
public enum BAErrorCode: Int, Hashable, Sendable {
    /// The download breaks a rule.
    case downloadInvalid = 0
    /// An extension may not call this.
    case callFromExtensionNotAllowed = 50
    /// A process in the background may not call this.
    case callFromInactiveProcessNotAllowed = 51
    /// The system did not accept the connection of the caller.
    case callerConnectionNotAccepted = 55
    /// The connection of the caller broke.
    case callerConnectionInvalid = 56
    /// The download was asked for before.
    case downloadAlreadyScheduled = 100
    /// Nobody asked for the download.
    case downloadNotScheduled = 101
    /// The download could not be started.
    case downloadFailedToStart = 102
    /// The download has failed already.
    case downloadAlreadyFailed = 103
    /// Nothing is essential in this request.
    case downloadEssentialDownloadNotPermitted = 109
    /// Nothing is downloaded in the background at present.
    case downloadBackgroundActivityProhibited = 111
    /// The allowance does not suffice for the download.
    case downloadWouldExceedAllowance = 112
    /// There is no such download.
    case downloadDoesNotExist = 113
    /// The host of the file is not in the list of those allowed.
    case sessionDownloadDisallowedByDomain = 202
    /// There is no allowance for such downloads.
    case sessionDownloadDisallowedByAllowance = 203
    /// The file was larger than what was left of the allowance.
    case sessionDownloadAllowanceExceeded = 204
    /// Such a download has to wait for the first launch.
    case sessionDownloadNotPermittedBeforeAppLaunch = 206
}

/// An error of this framework.
///
/// Apple's is an `NSError` of the domain ``BAErrorDomain``; on Linux its number is had by
/// `(error as? BAError)?.code`.
public struct BAError: Error, Hashable, Sendable {
    /// The number, of ``BAErrorCode`` or of a later version of the protocol.
    public var errorCode: Int
    /// The reason as a sentence fragment.
    public var message: String

    /// Creates an error from its number and reason.
    public init(errorCode: Int, message: String) {
        self.errorCode = errorCode
        self.message = message
    }

    init(_ code: BAErrorCode, _ message: String) {
        self.init(errorCode: code.rawValue, message: message)
    }

    /// The number by its name; `nil` for one that is not known here.
    public var code: BAErrorCode? { BAErrorCode(rawValue: errorCode) }
}

extension BAError: CustomNSError {
    /// The domain of the errors of this framework.
    public static var errorDomain: String { BAErrorDomain }
}

extension BAError: LocalizedError, CustomStringConvertible {
    /// The reason as a sentence fragment.
    public var errorDescription: String? { message }

    /// The reason and the number.
    public var description: String { "\(message) (\(errorCode))" }
}
