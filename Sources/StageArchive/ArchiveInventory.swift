package import StageModel
import StageSystem
package import SystemPackage

/// Totals of an archive's content, as a manifest declares them.
package struct ArchiveInventory: Hashable, Sendable, Codable {
    /// The number of files and symbolic links.
    package var fileCount = 0
    /// The number of directories, including implied parents.
    package var directoryCount = 0
    /// The sum of the file sizes.
    package var installedSize = ByteCount.zero

    /// Creates an inventory from its totals.
    package init(
        fileCount: Int = 0,
        directoryCount: Int = 0,
        installedSize: ByteCount = .zero
    ) {
        self.fileCount = fileCount
        self.directoryCount = directoryCount
        self.installedSize = installedSize
    }

    /// Reads a whole archive, and checks each entry as unpacking does.
    ///
    /// Confines the decoder as for unpacking, and lets it open no file at all. Names that only some file systems
    /// treat as equal are not detected.
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
        var paths = PathInventory(limits: Self.limits)
        var reader = try ArchiveReader.open(
            file.descriptor,
            format: format,
            limits: Self.limits
        )
        while let header = try reader.nextEntry() {
            guard let entry = try header.entry() else { continue }
            switch entry.kind {
            case .directory:
                try paths.add(.directory, at: entry.path)
                continue
            case .link(let target):
                try paths.add(.link, at: entry.path)
                links.add(entry.path, to: target)
            case .file:
                var size = ByteCount.zero
                try unsafe reader.readData { (piece) throws(ArchiveError) in
                    size = size + ByteCount(piece.count)
                    guard installedSize + size <= Self.limits.bytes else {
                        throw .tooLarge(entry: entry.path.text, limit: Self.limits.bytes)
                    }
                }
                try paths.add(.file(size), at: entry.path)
                installedSize = installedSize + size
            case .copy(let original):
                let size = try paths.size(ofCopy: entry.path, of: original)
                try paths.add(.file(size), at: entry.path)
                installedSize = installedSize + size
                guard installedSize <= Self.limits.bytes else {
                    throw .tooLarge(entry: entry.path.text, limit: Self.limits.bytes)
                }
            }
            fileCount += 1
            guard fileCount <= Self.limits.entries else {
                throw .tooManyEntries(entry: entry.path.text, limit: Self.limits.entries)
            }
        }
        if let (path, fault) = links.firstFault() { throw .notAllowed(entry: path, fault) }
        try paths.checkDirectories(fileCount: fileCount)
        directoryCount = paths.directories
    }
}

/// The paths of an archive, with which unpacking would fail if two were in conflict.
private struct PathInventory {
    enum Kind {
        case file(ByteCount)
        case link
        case directory
    }

    private let limits: UnpackLimits
    /// The kinds of entries and implied parents, by the bytes of paths: as strings, canonically equivalent ones are
    /// equal.
    private var kinds: [[UInt8]: Kind] = [:]
    /// The number of directories, including implied parents.
    private(set) var directories = 0
    private var directoryEntries = 0
    private var lastDirectory = ""

    init(limits: UnpackLimits) { self.limits = limits }

    /// Adds an entry and its parents.
    ///
    /// - Throws: ``ArchiveError/collision(entry:_:)`` or ``ArchiveError/tooManyEntries(entry:limit:)``.
    mutating func add(_ kind: Kind, at path: ContentPath) throws(ArchiveError) {
        var above = path.parent
        while let parent = above {
            let bytes = Array(parent.text.utf8)
            if let present = kinds[bytes] {
                guard case .directory = present else {
                    throw .collision(entry: path.text, .fileAndDirectory)
                }
                break
            }
            try addDirectory(at: parent, bytes: bytes)
            above = parent.parent
        }
        let bytes = Array(path.text.utf8)
        switch (kinds[bytes], kind) {
        case (nil, .directory):
            try countDirectoryEntry(at: path)
            try addDirectory(at: path, bytes: bytes)
        case (nil, _): kinds[bytes] = kind
        case (.directory, .directory): try countDirectoryEntry(at: path)
        case (.directory, _), (_, .directory):
            throw .collision(entry: path.text, .fileAndDirectory)
        case (_, _): throw .collision(entry: path.text, .sameName)
        }
    }

    private mutating func addDirectory(
        at path: ContentPath,
        bytes: [UInt8]
    ) throws(ArchiveError) {
        kinds[bytes] = .directory
        directories += 1
        lastDirectory = path.text
        guard directories <= limits.directories else {
            throw .tooManyEntries(entry: path.text, limit: limits.directories)
        }
    }

    private mutating func countDirectoryEntry(at path: ContentPath) throws(ArchiveError) {
        directoryEntries += 1
        guard directoryEntries <= limits.directories else {
            throw .tooManyEntries(entry: path.text, limit: limits.directories)
        }
    }

    /// Returns the size of a hard link's file.
    ///
    /// - Throws: ``ArchiveError/notAllowed(entry:_:)`` if it links to no earlier file.
    func size(
        ofCopy path: ContentPath,
        of original: ContentPath
    ) throws(ArchiveError) -> ByteCount {
        guard case .file(let size) = kinds[Array(original.text.utf8)] else {
            throw .notAllowed(entry: path.text, .copyWithoutOriginal(original.text))
        }
        return size
    }

    /// Checks the number of directories against that which a pack with this number of files and links may have.
    func checkDirectories(fileCount: Int) throws(ArchiveError) {
        let limit = ManifestLimits.directories(fileCount: fileCount)
        guard max(directories, directoryEntries) <= limit else {
            throw .tooManyEntries(entry: lastDirectory, limit: limit)
        }
    }
}

extension ValueError {
    /// A hard link whose file does not precede it in the archive.
    static func copyWithoutOriginal(_ original: String) -> ValueError {
        ValueError(expected: "a hard link to a file that the pack brought before", text: original)
    }
}
