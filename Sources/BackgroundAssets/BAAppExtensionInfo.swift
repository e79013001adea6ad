import StageExtension

/// The remaining download allowance before the application's first launch.
public final class BAAppExtensionInfo: Sendable {
    /// The remaining bytes of downloads that are not essential; `nil` for no restriction.
    public let restrictedDownloadSizeRemaining: Int?
    /// The remaining bytes of essential downloads; `nil` for no restriction.
    public let restrictedEssentialDownloadSizeRemaining: Int?

    init(_ request: ExtensionRequest) {
        restrictedDownloadSizeRemaining = request.restrictedDownloadSizeRemaining
        restrictedEssentialDownloadSizeRemaining = request.restrictedEssentialDownloadSizeRemaining
    }
}
