// A file that imports Foundation and this module has these from Apple's Foundation on Linux too, where
// they are in FoundationNetworking; and it has this module's URLSession, not FoundationNetworking's.
// Hence each by its name: a file that imports all of FoundationNetworking has two classes of that name.
@_exported public import class FoundationNetworking.HTTPURLResponse
@_exported public import class FoundationNetworking.NSMutableURLRequest
@_exported public import let FoundationNetworking.NSURLAuthenticationMethodDefault
@_exported public import let FoundationNetworking.NSURLAuthenticationMethodHTTPBasic
@_exported public import let FoundationNetworking.NSURLAuthenticationMethodHTTPDigest
@_exported public import class FoundationNetworking.NSURLRequest
@_exported public import class FoundationNetworking.URLAuthenticationChallenge
@_exported public import protocol FoundationNetworking.URLAuthenticationChallengeSender
@_exported public import class FoundationNetworking.URLCredential
@_exported public import class FoundationNetworking.URLProtectionSpace
@_exported public import struct FoundationNetworking.URLRequest
@_exported public import class FoundationNetworking.URLResponse
@_exported public import struct StageControl.Hold
@_exported public import enum StageControl.HoldReason
@_exported public import struct StageControl.LaunchHandler
