public import StageModel
import StageSystem
public import SystemPackage

/// What an archive holds, in figures: what a manifest has to say of it.
public struct ArchiveInventory: Hashable, Sendable {
    /// How many files and symbolic links there are.
    public var fileCount = 0
    /// The sum of the sizes of the files.
    public var installedSize = ByteCount.zero

    /// Reads an archive from its first byte to its last, and judges every entry as unpacking does.
    ///
    /// For archives of one's own: the decoder is not confined. Duplicates are not looked for.
    ///
    /// - Throws: ``ArchiveError``, for an archive that would not be unpacked.
    public init(_ path: FilePath, format: ArchiveFormat) throws(ArchiveError) {
        let file = try ArchiveError.wrapping { () throws(FileError) in
            try File.open(readingRegular: path)
        }
        try self.init(file, format: format)
    }

    private init(_ file: borrowing File, format: ArchiveFormat) throws(ArchiveError) {
        if format == .file {
            fileCount = 1
            installedSize = ByteCount(FileStatus(of: file.descriptor)?.size ?? 0)
            return
        }
        var links = ContentLinks()
        var sizes: [String: ByteCount] = [:]
        var reader = try ArchiveReader.open(file.descriptor, format: format)
        while let header = try reader.nextEntry() {
            guard let entry = try Self.judge(header) else { continue }
            switch entry.kind {
            case .directory:
                continue
            case .link(let target):
                links.add(entry.path, to: target)
            case .file:
                var size = ByteCount.zero
                try unsafe reader.readData { size = size + ByteCount($0.count) }
                sizes[entry.path.text] = size
                installedSize = installedSize + size
            case .copy(let original):
                installedSize = installedSize + (sizes[original.text] ?? .zero)
            }
            fileCount += 1
        }
        if let (path, fault) = links.firstFault() { throw .notAllowed(entry: path, fault) }
    }

    private static func judge(
        _ header: ArchiveReader.Header
    ) throws(ArchiveError) -> ContentEntry? {
        do {
            return try ContentEntry.judge(
                name: header.name,
                claim: header.claim,
                mode: header.mode
            )
        } catch {
            throw .notAllowed(entry: header.name.clipped, error)
        }
    }
}
