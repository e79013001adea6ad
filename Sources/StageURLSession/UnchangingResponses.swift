import FoundationNetworking

/// The head of an answer on its way to the delegate.
///
/// Unchecked, since an `URLResponse` does not change.
struct UnchangingResponse: @unchecked Sendable {
    var value: URLResponse
}

/// The head of an answer of HTTP on its way to the delegate.
///
/// Unchecked, since an `HTTPURLResponse` does not change.
struct UnchangingHTTPResponse: @unchecked Sendable {
    var value: HTTPURLResponse
}

/// What a cache keeps, on its way to the delegate and back.
///
/// Unchecked, since a `CachedURLResponse` does not change.
struct UnchangingCachedResponse: @unchecked Sendable {
    var value: CachedURLResponse
}
