/// Limits of manifests and registrations.
///
/// They far exceed the needs of publishers, and bound the memory and time that a hostile manifest can cost.
public enum ManifestLimits {
    /// The maximum number of bytes of a manifest: 16 MiB.
    public static let byteCount = 16 << 20
    /// The maximum number of bytes of the records of a container's manifests together: 128 MiB.
    public static let storedByteCount = 128 << 20
    /// The maximum number of bytes of a registration: 1 MiB.
    public static let registrationByteCount = 1 << 20
    /// The maximum number of levels of nested arrays and objects.
    public static let nesting = 64
    /// The maximum number of characters of a number.
    public static let numberLength = 64
    /// The maximum number of events that a policy names.
    public static let events = 16
    /// The maximum number of packs of a manifest.
    public static let packs = 10_000
    /// The maximum number of mirrors of a manifest.
    public static let baseURLs = 16
    /// The maximum number of bytes of a URL.
    public static let urlLength = 2048
    /// The maximum number of bytes of a pack's `userInfo`, as compact JSON: 64 KiB.
    public static let userInfoLength = 64 << 10
    /// The largest archive: 1 TiB.
    public static let archiveSize = ByteCount.mebibytes(1 << 20)
    /// The largest decoder window of an archive or a patch, and the maximum bytes of an older version that a part of a
    /// patch refers to: 128 MiB.
    public static let windowSize = ByteCount.mebibytes(128)
    /// The largest index of a pack, compressed and decompressed: 256 MiB.
    public static let indexSize = ByteCount.mebibytes(256)
    /// The largest delta set between two versions of a pack: 256 MiB.
    public static let deltaSetSize = ByteCount.mebibytes(256)
    /// The largest patch between two versions of a pack: 1 TiB.
    public static let patchSize = ByteCount.mebibytes(1 << 20)
    /// The largest table of a delta set or a patch: 16 MiB.
    public static let deltaTableSize = ByteCount.mebibytes(16)
    /// The maximum number of deltas of an index.
    public static let deltas = 16
    /// The largest sum of a pack's file sizes: 4 TiB.
    public static let installedSize = ByteCount.mebibytes(4 << 20)
    /// The maximum number of files and symbolic links of a pack.
    public static let fileCount = 1_000_000
    /// Returns the most directories, including implied parents, of a pack with this number of files and
    /// links: 4,096, and two for each.
    ///
    /// A directory takes a block and an inode, and almost no bytes of an index or an archive. A manifest states at most this
    /// many, or none: then the limit applies to the content. Real trees have fewer directories than files: the files of a
    /// Linux system in `/usr/lib` have one for five of them.
    public static func directories(fileCount: Int) -> Int {
        let (product, overflows) = fileCount.multipliedReportingOverflow(by: 2)
        return overflows ? .max : product.addingReportingOverflow(4096).partialValue
    }
    /// The maximum number of manifest URLs of a registration.
    public static let manifestURLs = 8
    /// The maximum number of bytes of an application's version.
    public static let versionLength = 128
    /// The maximum number of domains of a registration's allow list.
    public static let allowedDomains = 256
    /// The maximum number of bytes of a file's path in a registration.
    public static let pathLength = 4096
    /// The maximum number of arguments of a program.
    public static let arguments = 64
    /// The maximum number of bytes of one argument of a program.
    public static let argumentLength = 4096
}
