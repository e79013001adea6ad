// Apple's Foundation has these; on Linux they are in FoundationNetworking. One by one, since a file that has imported
// no more than Foundation and this module gets no second URLSession by it.
@_exported public import class FoundationNetworking.CachedURLResponse
@_exported public import class FoundationNetworking.HTTPCookie
@_exported public import struct FoundationNetworking.HTTPCookiePropertyKey
@_exported public import class FoundationNetworking.HTTPCookieStorage
@_exported public import class FoundationNetworking.HTTPURLResponse
@_exported public import class FoundationNetworking.NSMutableURLRequest
@_exported public import let FoundationNetworking.NSURLAuthenticationMethodDefault
@_exported public import let FoundationNetworking.NSURLAuthenticationMethodHTMLForm
@_exported public import let FoundationNetworking.NSURLAuthenticationMethodHTTPBasic
@_exported public import let FoundationNetworking.NSURLAuthenticationMethodHTTPDigest
@_exported public import let FoundationNetworking.NSURLAuthenticationMethodNTLM
@_exported public import let FoundationNetworking.NSURLAuthenticationMethodNegotiate
@_exported public import let FoundationNetworking.NSURLCredentialStorageRemoveSynchronizableCredentials
@_exported public import let FoundationNetworking.NSURLProtectionSpaceFTP
@_exported public import let FoundationNetworking.NSURLProtectionSpaceFTPProxy
@_exported public import let FoundationNetworking.NSURLProtectionSpaceHTTP
@_exported public import let FoundationNetworking.NSURLProtectionSpaceHTTPProxy
@_exported public import let FoundationNetworking.NSURLProtectionSpaceHTTPS
@_exported public import let FoundationNetworking.NSURLProtectionSpaceHTTPSProxy
@_exported public import let FoundationNetworking.NSURLProtectionSpaceSOCKSProxy
@_exported public import class FoundationNetworking.NSURLRequest
@_exported public import class FoundationNetworking.URLAuthenticationChallenge
@_exported public import protocol FoundationNetworking.URLAuthenticationChallengeSender
@_exported public import class FoundationNetworking.URLCache
@_exported public import class FoundationNetworking.URLCredential
@_exported public import class FoundationNetworking.URLCredentialStorage
@_exported public import class FoundationNetworking.URLProtectionSpace
@_exported public import class FoundationNetworking.URLProtocol
@_exported public import protocol FoundationNetworking.URLProtocolClient
@_exported public import struct FoundationNetworking.URLRequest
@_exported public import class FoundationNetworking.URLResponse
@_exported public import enum FoundationNetworking.tls_ciphersuite_t
@_exported public import enum FoundationNetworking.tls_protocol_version_t
@_exported public import struct StageControl.LaunchHandler
@_exported public import struct StageControl.PendingReason
// Swift prefers a declaration that is imported by its name to one that comes with a whole module (scoped imports shadow
// unscoped ones). Exported by name, these are what a file means that also imports FoundationNetworking, or
// BackgroundAssets, which exports it: both have a URLSession of their own. This works only for declarations of another
// module, hence StageURLSession.
@_exported public import struct StageURLSession.BackgroundLaunch
@_exported public import enum StageURLSession.BackgroundTransferEvent
@_exported public import struct StageURLSession.BackgroundTransferEvents
@_exported public import protocol StageURLSession.BackgroundURLSessionHandling
@_exported public import struct StageURLSession.DownloadContent
@_exported public import let StageURLSession.NSURLErrorNetworkUnavailableReasonKey
@_exported public import let StageURLSession.NSURLSessionDownloadTaskResumeData
@_exported public import let StageURLSession.NSURLSessionTransferSizeUnknown
@_exported public import class StageURLSession.URLSession
@_exported public import class StageURLSession.URLSessionConfiguration
@_exported public import protocol StageURLSession.URLSessionDataDelegate
@_exported public import class StageURLSession.URLSessionDataTask
@_exported public import protocol StageURLSession.URLSessionDelegate
@_exported public import protocol StageURLSession.URLSessionDownloadDelegate
@_exported public import class StageURLSession.URLSessionDownloadTask
@_exported public import class StageURLSession.URLSessionTask
@_exported public import protocol StageURLSession.URLSessionTaskDelegate
@_exported public import class StageURLSession.URLSessionTaskMetrics
@_exported public import class StageURLSession.URLSessionTaskTransactionMetrics
@_exported public import class StageURLSession.URLSessionUploadTask
@_exported public import protocol StageURLSession.URLSessionWebSocketDelegate
@_exported public import class StageURLSession.URLSessionWebSocketTask
