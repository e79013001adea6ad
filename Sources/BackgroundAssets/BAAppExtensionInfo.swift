import StageExtension

/// What may still be spent before the first launch of the application.
public final class BAAppExtensionInfo: Sendable {
    /// The bytes that downloads which are not essential may have; `nil` for no restriction.
    public let restrictedDownloadSizeRemaining: Int?
    /// The bytes that essential downloads may have; `nil` for no restriction.
    public let restrictedEssentialDownloadSizeRemaining: Int?

    init(_ request: ExtensionRequest) {
        restrictedDownloadSizeRemaining = request.restrictedDownloadSizeRemaining
        restrictedEssentialDownloadSizeRemaining = request.restrictedEssentialDownloadSizeRemaining
    }
}
