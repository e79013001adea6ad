import StageIndex
import StageModel
import StagePublish
import SystemPackage

/// The older versions of a pack that a command line names for delta sets, limited to as many as a manifest
/// may name.
struct BaseVersions {
    /// An older version.
    struct Base {
        /// The file as the command line names it.
        var name: String
        /// The file of the index; another one than `name` if that is a manifest.
        var file: FilePath
        /// The index.
        var index: ContentIndex
        /// The digest of the index, decompressed.
        var digest: Digest
        /// The time at which the index was written, in nanoseconds since 1970; newer versions have later
        /// times.
        fileprivate var modified: Int64
    }

    /// The versions, in the order of the command line.
    private(set) var list: [Base] = []
    /// The files of the versions above the limit, the oldest ones.
    private(set) var leftOut: [String] = []

    /// Reads indexes from their files, or from a store if the files are manifests that name them.
    ///
    /// A version that is named twice counts once.
    ///
    /// - Parameters:
    ///   - files: The files.
    ///   - pack: The pack; `nil` if it is not known.
    ///   - store: The store.
    ///   - keepsFirst: Pass `true` to keep the first version, regardless of its age.
    /// - Throws: ``CommandFailure`` for a file that is neither an index nor a manifest with an index of the
    ///   pack.
    init(
        _ files: [String],
        of pack: PackID?,
        in store: FilePath,
        keepsFirst: Bool
    ) throws(CommandFailure) {
        for name in files {
            let file = try IndexFile(name).index(of: pack, in: store)
            let stored = try file.read(findsCompanions: false)
            let digest = stored.reference.contentDigest
            guard !list.contains(where: { $0.digest == digest }) else { continue }
            let modified = try keepsFirst && list.isEmpty ? Int64.max : file.modified()
            list.append(
                Base(
                    name: name,
                    file: FilePath(file.path),
                    index: stored.index,
                    digest: digest,
                    modified: modified
                )
            )
        }
        omitOldest()
    }

    /// Omits the oldest versions above the limit; of equally old ones, those that the command line names last.
    private mutating func omitOldest() {
        let newestFirst = list.indices.sorted { left, right in
            (list[right].modified, left) < (list[left].modified, right)
        }
        let omitted = Set(newestFirst.dropFirst(ManifestLimits.deltas))
        leftOut = omitted.sorted().map { list[$0].name }
        list = list.indices.filter { !omitted.contains($0) }.map { list[$0] }
    }

    /// The files as the command line names them, by the digests of their indexes.
    var names: [Digest: String] {
        Dictionary(list.map { ($0.digest, $0.name) }) { first, _ in first }
    }
}
