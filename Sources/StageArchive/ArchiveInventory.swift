package import StageModel
import StageSystem
package import SystemPackage

/// Totals of an archive's content, as a manifest declares them.
package struct ArchiveInventory: Hashable, Sendable, Codable {
    /// The number of files and symbolic links.
    package var fileCount = 0
    /// The sum of the file sizes.
    package var installedSize = ByteCount.zero

    /// Creates an inventory from its totals.
    package init(fileCount: Int = 0, installedSize: ByteCount = .zero) {
        self.fileCount = fileCount
        self.installedSize = installedSize
    }

    /// Reads a whole archive, and checks each entry as unpacking does.
    ///
    /// Confines the decoder as for unpacking, and lets it open no file at all. Does not detect duplicate
    /// names.
    ///
    /// - Throws: ``ArchiveError`` for an archive that cannot be unpacked.
    package init(
        of path: FilePath,
        format: ArchiveFormat,
        decoding mode: Unpacker.Mode
    ) throws(ArchiveError) {
        let file = try ArchiveError.wrapping { () throws(FileError) in
            try File.open(readingRegular: path)
        }
        switch mode {
        case .thread:
            let thread = DecoderThread<ArchiveInventory>(isCancelled: { false })
            self = try thread.run { (_) throws(ArchiveError) in
                let file = try ArchiveError.wrapping { () throws(FileError) in
                    try File.open(readingRegular: path)
                }
                return try ArchiveInventory(confinedTo: file, format: format, answeringOn: nil)
            }
        case .process(let executable, let arguments):
            let exchange = DecoderExchange(
                ServiceRequest(task: .count, format: format),
                archive: file.descriptor,
                destination: nil,
                progress: { _ in }
            )
            let launcher = DecoderLauncher(executable: executable, arguments: arguments)
            guard case .inventory(let inventory) = try exchange.run(with: launcher) else {
                throw .fileSystem(
                    FileError("receive from", path: "socket", errno: .invalidArgument)
                )
            }
            self = inventory
        }
    }

    /// The limits for reading: those of the largest allowed pack.
    static let limits = UnpackLimits(
        entries: ManifestLimits.fileCount,
        bytes: ManifestLimits.installedSize
    )

    /// Reads an archive on the calling thread, which it confines permanently.
    init(
        confinedTo file: borrowing File,
        format: ArchiveFormat,
        answeringOn channel: FileDescriptor?
    ) throws(ArchiveError) {
        _ = try Confinement.forDecoding(beneath: nil, answeringOn: channel)
        try self.init(file, format: format)
    }

    private init(_ file: borrowing File, format: ArchiveFormat) throws(ArchiveError) {
        if format == .file {
            fileCount = 1
            installedSize = ByteCount(FileStatus(of: file.descriptor)?.size ?? 0)
            return
        }
        var links = ContentLinks()
        // By the bytes of paths: as strings, canonically equivalent ones are equal.
        var sizes: [[UInt8]: ByteCount] = [:]
        var reader = try ArchiveReader.open(
            file.descriptor,
            format: format,
            limits: Self.limits
        )
        while let header = try reader.nextEntry() {
            guard let entry = try header.entry() else { continue }
            switch entry.kind {
            case .directory:
                continue
            case .link(let target):
                links.add(entry.path, to: target)
            case .file:
                var size = ByteCount.zero
                try unsafe reader.readData { (piece) throws(ArchiveError) in
                    size = size + ByteCount(piece.count)
                    guard installedSize + size <= Self.limits.bytes else {
                        throw .tooLarge(entry: entry.path.text, limit: Self.limits.bytes)
                    }
                }
                sizes[Array(entry.path.text.utf8)] = size
                installedSize = installedSize + size
            case .copy(let original):
                installedSize = installedSize + (sizes[Array(original.text.utf8)] ?? .zero)
            }
            fileCount += 1
            guard fileCount <= Self.limits.entries else {
                throw .tooManyEntries(entry: entry.path.text, limit: Self.limits.entries)
            }
        }
        if let (path, fault) = links.firstFault() { throw .notAllowed(entry: path, fault) }
    }
}
