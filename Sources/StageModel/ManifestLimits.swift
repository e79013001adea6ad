/// The limits on what a manifest may say.
public enum ManifestLimits {
    /// The bytes of a manifest.
    public static let byteCount = 16 << 20
    /// The bytes of a registration.
    public static let registrationByteCount = 1 << 20
}
