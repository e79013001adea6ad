/// Over which transports a manifest is believed without a root of trust.
public enum ManifestTrust {
    /// Whether a manifest from the URL may be accepted for its transport alone.
    public static func isAcceptable(_ url: String) -> Bool {
        !url.hasPrefix("http://") || url.hasPrefix("http://127.0.0.1")
            || url.hasPrefix("http://localhost")
    }
}
