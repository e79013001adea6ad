import CLinux
import Glibc
import StageModel
import StageSystem
import SystemPackage

/// Callbacks during unpacking.
struct UnpackEvents {
    /// Called with the bytes read so far, about once a MiB.
    var progress: (ByteCount) -> Void = { _ in }
    /// Polled after each buffer; return `true` to cancel.
    var isCancelled: () -> Bool = { false }
}

extension UnpackRequest {
    /// Unpacks the archive on the calling thread and one or two worker threads, which end before it returns.
    ///
    /// An entry that packs must not contain is an error that names it, never skipped. After an error the
    /// destination contains the files written so far, which the caller removes.
    func unpack(_ events: UnpackEvents = UnpackEvents()) throws(ArchiveError) -> UnpackReport {
        var unpacking = Unpacking(self, events: events)
        do {
            let report = try unpacking.run()
            unpacking.close()
            return report
        } catch {
            unpacking.close()
            throw error
        }
    }
}

/// The state of unpacking one archive.
private struct Unpacking: ~Copyable {
    private let request: UnpackRequest
    private let events: UnpackEvents
    private var writer: BatchWriter
    private var links = ContentLinks()
    private var files = 0
    private var directoryEntries = 0
    private var bytes: Int64 = 0
    private var reportedBytes: Int64 = 0

    init(_ request: UnpackRequest, events: UnpackEvents) {
        self.request = request
        self.events = events
        writer = BatchWriter(root: request.destination, limits: request.limits)
    }

    consuming func close() {
        writer.close()
    }

    mutating func run() throws(ArchiveError) -> UnpackReport {
        if request.format == .file {
            try copySingleFile()
        } else {
            try unpackEntries()
        }
        try makeLinks()
        try writer.finish()
        return UnpackReport(
            files: files,
            directories: writer.directories,
            links: links.count,
            bytes: ByteCount(bytes)
        )
    }

    private mutating func unpackEntries() throws(ArchiveError) {
        try request.checkWindow()
        var reader = try ArchiveReader.open(
            request.archive,
            format: request.format,
            limits: request.limits
        )
        while let header = try reader.nextEntry() {
            guard !events.isCancelled() else { throw .cancelled }
            try take(header, from: &reader)
        }
    }

    private mutating func take(
        _ header: ArchiveReader.Header,
        from reader: inout ArchiveReader
    ) throws(ArchiveError) {
        guard let entry = try header.entry() else {
            try countDirectory(header.name)
            return
        }
        let path = entry.path.text
        switch entry.kind {
        case .file(let isExecutable):
            try countEntry(path)
            try takeFile(path, isExecutable: isExecutable, size: header.size, from: &reader)
        case .directory:
            try countDirectory(path)
            try writer.begin(.directory, path: path, content: 0)
        case .link(let target):
            try countEntry(path)
            links.add(entry.path, to: target)
        case .copy(let original):
            try countEntry(path)
            guard header.size ?? 0 == 0 else {
                throw .notAllowed(
                    entry: path,
                    ValueError(expected: "a hard link without content", found: "content")
                )
            }
            try copy(original.text, to: path)
        }
    }

    private mutating func takeFile(
        _ path: String,
        isExecutable: Bool,
        size: Int64?,
        from reader: inout ArchiveReader
    ) throws(ArchiveError) {
        files += 1
        if let size { try checkSize(of: size, path: path) }
        let start = bytes
        if let size, size <= WriteBatch.wholeFileLimit {
            try writer.begin(.file(isExecutable: isExecutable), path: path, content: Int(size))
            try unsafe reader.readData { (piece) throws(ArchiveError) in
                try count(piece.count, of: path)
                guard bytes - start <= size else { throw wrongSize(path) }
                unsafe writer.append(piece)
            }
        } else {
            let file = try writer.create(
                path,
                isExecutable: isExecutable,
                startsWriting: size ?? 0 >= 1 << 20
            )
            try unsafe reader.readData { (piece) throws(ArchiveError) in
                let offset = bytes - start
                try count(piece.count, of: path)
                try unsafe writer.append(piece, of: file, at: offset)
            }
        }
        guard bytes - start == size ?? bytes - start else { throw wrongSize(path) }
    }

    private func wrongSize(_ path: String) -> ArchiveError {
        .damaged(entry: path, "the size is not the one declared")
    }

    /// Copies a file that was unpacked before, in place of a hard link.
    private mutating func copy(_ original: String, to path: String) throws(ArchiveError) {
        try writer.finish()
        let fault = ArchiveError.notAllowed(entry: path, .copyWithoutOriginal(original))
        guard case .success(let source) = try writer.open(original) else { throw fault }
        let descriptor = FileDescriptor(rawValue: source.descriptor)
        guard let status = FileStatus(of: descriptor), status.kind == .file else { throw fault }
        try copy(source, size: status.size, to: path, isExecutable: status.isExecutable)
    }

    private mutating func copySingleFile() throws(ArchiveError) {
        let name = request.fileName ?? ""
        let header = ArchiveReader.Header(name: name, claim: .file, mode: 0o644, size: nil)
        guard let path = try header.entry()?.path.text else { return }
        try countEntry(path)
        guard let status = FileStatus(of: request.archive), status.kind == .file else {
            throw .damaged(entry: nil, "not a regular file")
        }
        // The caller keeps the archive open until the request has ended.
        let source = OpenFile(borrowing: request.archive.rawValue, path: name)
        try self.copy(source, size: status.size, to: path, isExecutable: false)
    }

    private mutating func copy(
        _ source: OpenFile,
        size: Int64,
        to path: String,
        isExecutable: Bool
    ) throws(ArchiveError) {
        files += 1
        try checkSize(of: size, path: path)
        let file = try writer.create(
            path,
            isExecutable: isExecutable,
            startsWriting: size >= 1 << 20
        )
        var offset: Int64 = 0
        while offset < size {
            guard !events.isCancelled() else { throw .cancelled }
            let step = Int(min(size - offset, 1 << 20))
            guard
                let moved = copyRange(
                    of: source.descriptor,
                    to: file.descriptor,
                    at: offset,
                    count: step
                )
            else {
                let reason = FileError(
                    "write",
                    path: request.destination.path.appending(path),
                    errno: .current
                )
                throw .fileSystem(reason)
            }
            guard moved > 0 else { throw wrongSize(path) }
            offset += Int64(moved)
            try count(moved, of: path)
        }
    }

    private mutating func makeLinks() throws(ArchiveError) {
        if let (path, fault) = links.firstFault() {
            throw .notAllowed(entry: path, fault)
        }
        guard !links.isEmpty else { return }
        // Links are created last: a link never precedes a file of the same name.
        try writer.finish()
        for index in 0..<links.count {
            let (path, target) = links[index]
            try writer.addLink(
                String(decoding: path, as: UTF8.self),
                to: String(decoding: target, as: UTF8.self)
            )
        }
    }

    private mutating func countEntry(_ path: String) throws(ArchiveError) {
        guard files + links.count < request.limits.entries else {
            throw .tooManyEntries(entry: path, limit: request.limits.entries)
        }
    }

    private mutating func countDirectory(_ path: String) throws(ArchiveError) {
        directoryEntries += 1
        guard directoryEntries <= request.limits.directoryEntries else {
            throw .tooManyEntries(entry: path, limit: request.limits.directoryEntries)
        }
    }

    private mutating func checkSize(of size: Int64, path: String) throws(ArchiveError) {
        guard size <= request.limits.bytes.rawValue - bytes else {
            throw .tooLarge(entry: path, limit: request.limits.bytes)
        }
    }

    private mutating func count(_ read: Int, of path: String) throws(ArchiveError) {
        bytes += Int64(read)
        guard bytes <= request.limits.bytes.rawValue else {
            throw .tooLarge(entry: path, limit: request.limits.bytes)
        }
        guard !events.isCancelled() else { throw .cancelled }
        if bytes - reportedBytes >= 1 << 20 {
            reportedBytes = bytes
            events.progress(ByteCount(bytes))
        }
    }
}
