package import FoundationNetworking

/// A challenge that is passed to another thread.
///
/// Unchecked, since the properties of a `URLAuthenticationChallenge` do not change.
package struct UnchangingChallenge: @unchecked Sendable {
    /// The challenge.
    package let value: URLAuthenticationChallenge

    /// Creates the value for a challenge.
    package init(value: URLAuthenticationChallenge) { self.value = value }
}
