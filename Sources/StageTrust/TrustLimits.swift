public import StageModel

/// Limits of a refresh and a search, which bound the cost of a hostile repository.
public struct TrustLimits: Hashable, Sendable {
    /// The maximum number of bytes of a root file: 512 KiB.
    public var rootLength = ByteCount.kibibytes(512)
    /// The maximum number of bytes of a timestamp file: 16 KiB.
    public var timestampLength = ByteCount.kibibytes(16)
    /// The maximum number of bytes of a snapshot file, even if the timestamp states more: 2 MiB.
    public var snapshotLength = ByteCount.mebibytes(2)
    /// The maximum number of bytes of a targets file, even if the snapshot states more: 8 MiB.
    public var targetsLength = ByteCount.mebibytes(8)
    /// The maximum number of new root files of one refresh: 1,024.
    public var rootRotations = 1024
    /// The maximum number of targets roles that a search visits: 32.
    public var visitedRoles = 32

    /// Creates the default limits.
    public init() {}
}
