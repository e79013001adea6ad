import StageIndex
import StageModel
import StagePublish

/// Output of `package` for an archive.
struct PackageReport: Encodable, CustomStringConvertible {
    var pack: PackID
    var file: String
    var format: String
    var size: ByteCount
    var sha256: Digest
    var installedSize: ByteCount
    var fileCount: Int
    var directoryCount: Int
    /// The warnings of the recipe's evaluation.
    var warnings: [String]

    init(file: String, _ archive: PackagedArchive, of evaluation: RecipeEvaluation) {
        pack = archive.pack
        self.file = file
        format = archive.format.rawValue
        size = archive.size
        sha256 = archive.digest
        installedSize = archive.installedSize
        fileCount = archive.fileCount
        directoryCount = archive.directoryCount
        warnings = evaluation.warnings.map(\.description)
    }

    var description: String {
        """
        \(pack): \(file.forDisplay())
          format         \(format)
          size           \(size.rawValue) (\(size))
          sha256         \(sha256)
          installedSize  \(installedSize.rawValue) (\(installedSize))
          fileCount      \(fileCount)
          directoryCount \(directoryCount)
        """
    }
}

/// Output of `package --indexed`.
struct IndexedPackageReport: Encodable, CustomStringConvertible {
    var pack: PackID
    /// The index in the store, an argument for `manifest add` and `--base`.
    var file: String
    var size: ByteCount
    var sha256: Digest
    var bundleSize: ByteCount
    var newBytes: ByteCount
    /// The bytes copied from bundles of older versions.
    var repackedBytes: ByteCount
    /// The bundles that the version needs and the store does not have.
    var missingBundles: [Digest]
    /// The bundles of the older version that are damaged in the store, and that the version does not need.
    var damagedBundles: [Digest]
    /// The bytes of all delta sets; `nil` without one.
    var deltaBytes: ByteCount?
    /// The updates from the named older versions.
    var updates: [DeltaReport]
    /// The older versions without a delta set, because a manifest names at most 16.
    var leftOut: [String]
    /// The bytes of the archive of all files; `nil` without one.
    var archiveSize: ByteCount?
    var installedSize: ByteCount
    var fileCount: Int
    var directoryCount: Int
    /// The warnings of the recipe's evaluation.
    var warnings: [String]

    init(
        file: String,
        _ packaged: IndexedPack,
        of evaluation: RecipeEvaluation,
        from bases: BaseVersions
    ) {
        pack = packaged.pack
        self.file = file
        size = packaged.reference.size
        sha256 = packaged.reference.digest
        bundleSize = packaged.reference.bundleSize
        newBytes = packaged.newBytes
        repackedBytes = packaged.repackedBytes
        missingBundles = packaged.missingBundles
        damagedBundles = packaged.damagedBundles
        let sets = packaged.reference.deltas.compactMap(\.frames)
        deltaBytes = sets.isEmpty ? nil : sets.reduce(.zero) { $0 + $1.size }
        let names = bases.names
        updates = packaged.updates.map { DeltaReport(from: names[$0.base] ?? "\($0.base)", $0) }
        leftOut = bases.leftOut
        archiveSize = packaged.archive?.size
        installedSize = packaged.index.installedSize
        fileCount = packaged.index.fileCount
        directoryCount = packaged.index.directoryCount
        warnings = evaluation.warnings.map(\.description)
    }

    var description: String {
        """
        \(pack): \(file.forDisplay())
          size           \(size.rawValue) (\(size))
          sha256         \(sha256)
          bundleSize     \(bundleSize.rawValue) (\(bundleSize)), of which new: \(newBytes)\(repacked)\(deltas)\(archive)
          installedSize  \(installedSize.rawValue) (\(installedSize))
          fileCount      \(fileCount)
          directoryCount \(directoryCount)
        """
            + updates.map { "\n  from \($0)" }.joined()
            + leftOut.map { "\n  from \($0.forDisplay()): \(DeltaReport.tooMany)" }.joined()
    }

    /// Warnings about bundles of older versions that the store lacks, or has with other bytes, for people.
    var bundleWarnings: [String] {
        var warnings: [String] = []
        if let bundles = Self.text(missingBundles) {
            warnings.append(
                "bundles that this version needs are missing in the store: \(bundles). "
                    + "Upload the version to a server that has them, or package it without '--base'"
            )
        }
        if let bundles = Self.text(damagedBundles) {
            warnings.append(
                "bundles of the older version are damaged in the store: \(bundles). This version does not need them. "
                    + "Restore them for clients of older versions; 'stagepack store verify' finds all damage"
            )
        }
        return warnings
    }

    /// Returns the name of the first bundle, and the number of the others; `nil` if there are none.
    private static func text(_ bundles: [Digest]) -> String? {
        guard let first = bundles.first else { return nil }
        return "b/\(first)" + (bundles.count > 1 ? " and \(bundles.count - 1) more" : "")
    }

    private var repacked: String {
        repackedBytes > .zero ? ", copied from older bundles: \(repackedBytes)" : ""
    }

    private var archive: String {
        archiveSize.map { "\n  archiveSize    \($0.rawValue) (\($0))" } ?? ""
    }

    private var deltas: String {
        deltaBytes.map { "\n  deltaBytes     \($0.rawValue) (\($0))" } ?? ""
    }
}

/// Output of `package --evaluate`.
struct EvaluationReport: Encodable, CustomStringConvertible {
    struct Entry: Encodable {
        var path: ContentPath
        var kind: String
        var size: ByteCount?
        var target: String?
        var source: String
    }

    var pack: PackID
    var installedSize: ByteCount
    var fileCount: Int
    var directoryCount: Int
    var entries: [Entry]
    var warnings: [String]

    init(_ evaluation: RecipeEvaluation) {
        pack = evaluation.recipe.pack
        installedSize = evaluation.installedSize
        fileCount = evaluation.fileCount
        directoryCount = evaluation.directoryCount
        entries = evaluation.entries.map(Entry.init)
        warnings = evaluation.warnings.map(\.description)
    }

    var description: String {
        let width = max("\(installedSize.rawValue)".count, 1)
        func line(size: String, _ text: String) -> String {
            String(repeating: " ", count: max(width - size.count, 0)) + size + "  " + text
        }
        let lines = entries.map { entry in
            line(size: entry.size.map { "\($0.rawValue)" } ?? "", entry.name)
        }
        let total = "total: \(fileCount.quantity(of: "file")), \(installedSize)"
        return (lines + [line(size: "\(installedSize.rawValue)", total)]).joined(separator: "\n")
    }
}

extension EvaluationReport.Entry {
    fileprivate init(_ entry: RecipeEvaluation.Entry) {
        path = entry.content.path
        source = entry.source
        switch entry.content.kind {
        case .file(let isExecutable):
            kind = isExecutable ? "executable" : "file"
            size = entry.size
        case .directory: kind = "directory"
        case .link(let link):
            kind = "link"
            target = link.text
        case .copy: kind = "copy"
        }
    }

    /// The path with a mark for its kind, and its source if that is another path.
    fileprivate var name: String {
        switch kind {
        case "directory": return "\(path)/"
        case "link": return "\(path) -> \((target ?? "").forDisplay())"
        default:
            let mark = kind == "executable" ? "*" : ""
            let origin = source == path.text ? "" : " (from \(source.forDisplay()))"
            return "\(path)\(mark)\(origin)"
        }
    }
}
