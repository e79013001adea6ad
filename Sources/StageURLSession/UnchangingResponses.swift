import FoundationNetworking

/// The head of a response that is passed to the delegate.
///
/// Unchecked, since a `URLResponse` does not change.
struct UnchangingResponse: @unchecked Sendable {
    var value: URLResponse
}

/// The head of an HTTP response that is passed to the delegate.
///
/// Unchecked, since an `HTTPURLResponse` does not change.
struct UnchangingHTTPResponse: @unchecked Sendable {
    var value: HTTPURLResponse
}

/// A cached response that is passed to the delegate and back.
///
/// Unchecked, since a `CachedURLResponse` does not change.
struct UnchangingCachedResponse: @unchecked Sendable {
    var value: CachedURLResponse
}
