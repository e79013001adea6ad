import CArchive
import Glibc
import StageModel
import SystemPackage

/// Reads the entries of a tar or zip archive, in order, from an open file.
///
/// Owns the libarchive handles and reads each byte of the file once. Must stay on one thread, whose locale it
/// sets during its lifetime: libarchive converts names according to the locale.
@safe struct ArchiveReader: ~Copyable {
    private let handle: OpaquePointer
    private let format: ArchiveFormat
    private let decoded: DecodedSource?
    private let file: FileSource
    private var zipNames: ZipNames?
    /// The previous locale of the thread.
    private let previousLocale: locale_t?
    private var lastName: String?
    private var isAtStart = true

    /// The header of an entry.
    struct Header {
        /// The name, with invalid UTF-8 replaced.
        var name: String
        var claim: ContentEntry.Claim
        var mode: UInt32
        /// The size of the content, `nil` if the archive does not state it before the content.
        var size: Int64?
    }

    /// Opens the archive in `descriptor`, which must have the format `format`; compares the central directory of a zip
    /// archive with the limits.
    static func open(
        _ descriptor: FileDescriptor,
        format: ArchiveFormat,
        limits: UnpackLimits
    ) throws(ArchiveError) -> ArchiveReader {
        let names = format == .zip ? try ZipDirectory.check(descriptor, limits: limits) : nil
        let file = FileSource(descriptor)
        let decoded = format == .zip ? nil : try DecodedSource(file, format: format)
        let reader = ArchiveReader(file: file, decoded: decoded, format: format, zipNames: names)
        if let decoded { try reader.openTar(decoded) } else { try reader.openZip() }
        return reader
    }

    private init(
        file: FileSource,
        decoded: DecodedSource?,
        format: ArchiveFormat,
        zipNames: ZipNames?
    ) {
        guard let handle = unsafe archive_read_new() else { fatalError("out of memory") }
        unsafe self.handle = handle
        self.file = file
        self.decoded = decoded
        self.format = format
        self.zipNames = zipNames
        unsafe previousLocale = UTF8Locale.enter()
    }

    deinit {
        unsafe _ = archive_read_free(handle)
        unsafe UTF8Locale.leave(to: previousLocale)
    }

    /// Reads the next entry's header, or returns `nil` at the end of a complete archive.
    mutating func nextEntry() throws(ArchiveError) -> Header? {
        // Skips the rest of the previous entry's data, so that the position is its end.
        if !isAtStart {
            guard unsafe archive_read_data_skip(handle) == ARCHIVE_OK else { throw damaged }
        }
        let end = unsafe archive_filter_bytes(handle, 0)
        var entry: OpaquePointer?
        let status = unsafe archive_read_next_header(handle, &entry)
        switch status {
        case ARCHIVE_OK:
            let start = isAtStart ? 0 : end
            isAtStart = false
            guard let entry = unsafe entry else { throw damaged }
            let found = unsafe rawName(of: entry)?.clipped
            let names =
                if let decoded {
                    try decoded.checkEntry(at: start, name: found)
                } else {
                    try zipNames?.next() ?? StatedNames()
                }
            return try unsafe header(of: entry, names: names)
        case ARCHIVE_EOF:
            try decoded?.checkHeaders(upTo: .max)
            try decoded?.finish(after: isAtStart ? 0 : end)
            return nil
        case ARCHIVE_WARN:
            try decoded?.checkHeaders(upTo: end)
            if let entry = unsafe entry { lastName = unsafe rawName(of: entry)?.clipped }
            throw damaged
        default:
            try decoded?.checkHeaders(upTo: end)
            throw isAtStart && decoded?.failure == nil
                ? .wrongFormat(expected: format, unsafe errorMessage(of: handle)) : damaged
        }
    }

    /// Calls `body` with each piece of the current entry's content; a piece is valid only during the call.
    mutating func readData(
        _ body: (UnsafeRawBufferPointer) throws(ArchiveError) -> Void
    ) throws(ArchiveError) {
        var position: Int64 = 0
        while true {
            var bytes: UnsafeRawPointer?
            var count = 0
            var offset: Int64 = 0
            switch unsafe archive_read_data_block(handle, &bytes, &count, &offset) {
            case ARCHIVE_OK:
                guard offset == position else { throw sparse }
                position += Int64(count)
                try unsafe body(UnsafeRawBufferPointer(start: bytes, count: count))
            case ARCHIVE_EOF:
                return
            default:
                throw damaged
            }
        }
    }

    private func openZip() throws(ArchiveError) {
        try unsafe require(archive_read_support_format_zip_seekable(handle))
        let context = unsafe Unmanaged.passUnretained(file).toOpaque()
        try unsafe require(archive_read_set_read_callback(handle, readFile))
        try unsafe require(archive_read_set_skip_callback(handle, skipFile))
        try unsafe require(archive_read_set_seek_callback(handle, seekFile))
        try unsafe require(archive_read_set_callback_data(handle, context))
        try unsafe require(archive_read_open1(handle))
    }

    private func openTar(_ source: DecodedSource) throws(ArchiveError) {
        try unsafe require(archive_read_support_format_tar(handle))
        let context = unsafe Unmanaged.passUnretained(source).toOpaque()
        try unsafe require(archive_read_open(handle, context, nil, readDecoded, nil))
    }

    private func require(_ status: CInt) throws(ArchiveError) {
        guard status == ARCHIVE_OK else {
            throw decoded?.failure
                ?? .wrongFormat(expected: format, unsafe errorMessage(of: handle))
        }
    }

    private mutating func header(
        of entry: OpaquePointer,
        names: StatedNames
    ) throws(ArchiveError) -> Header {
        let name = try unsafe path(of: entry, stated: names.path)
        if unsafe archive_entry_is_encrypted(entry) != 0 {
            throw .notAllowed(
                entry: name.clipped,
                ValueError(expected: "plain content", found: "an encrypted entry")
            )
        }
        if unsafe archive_entry_sparse_count(entry) > 0 { throw sparse }
        return Header(
            name: name,
            claim: try unsafe claim(of: entry, name, statedTarget: names.target),
            mode: unsafe UInt32(archive_entry_perm(entry)),
            size: unsafe archive_entry_size_is_set(entry) != 0 ? archive_entry_size(entry) : nil
        )
    }

    /// Returns the entry's path, and keeps it as the last name.
    private mutating func path(
        of entry: OpaquePointer,
        stated: [UInt8]?
    ) throws(ArchiveError) -> String {
        guard let pathname = unsafe archive_entry_pathname(entry) else { throw damaged }
        let converted = unsafe String(cString: pathname)
        lastName = converted.clipped
        guard unsafe String(validatingCString: pathname) != nil else {
            throw .notAllowed(
                entry: converted.clipped,
                ValueError(expected: "a path in UTF-8", text: converted)
            )
        }
        let name = try StatedNames.resolve(stated, converted: converted, noun: "path", entry: nil)
        lastName = name.clipped
        return name
    }

    private func claim(
        of entry: OpaquePointer,
        _ name: String,
        statedTarget: [UInt8]?
    ) throws(ArchiveError) -> ContentEntry.Claim {
        if let target = unsafe archive_entry_hardlink(entry) {
            return .hardLink(target: try unsafe text(target, of: name, stated: statedTarget))
        }
        // The constants of archive_entry.h are casts, which Swift cannot import; their values are those of
        // stat(2).
        switch unsafe UInt32(archive_entry_filetype(entry)) {
        case 0o100000: return .file
        case 0o040000: return .directory
        case 0o120000:
            guard let target = unsafe archive_entry_symlink(entry) else {
                return .symbolicLink(target: "")
            }
            return .symbolicLink(target: try unsafe text(target, of: name, stated: statedTarget))
        case 0o020000: return .other(noun: "a character device")
        case 0o060000: return .other(noun: "a block device")
        case 0o010000: return .other(noun: "a fifo")
        case 0o140000: return .other(noun: "a socket")
        default: return .other(noun: "an entry of unknown kind")
        }
    }

    private func text(
        _ target: UnsafePointer<CChar>,
        of name: String,
        stated: [UInt8]?
    ) throws(ArchiveError) -> String {
        guard let text = unsafe String(validatingCString: target) else {
            let text = unsafe String(cString: target)
            throw .notAllowed(
                entry: name.clipped,
                ValueError(expected: "a target in UTF-8", text: text)
            )
        }
        return try StatedNames.resolve(
            stated,
            converted: text,
            noun: "target",
            entry: name.clipped
        )
    }

    private func rawName(of entry: OpaquePointer) -> String? {
        unsafe archive_entry_pathname(entry).map { unsafe String(cString: $0) }
    }

    private var sparse: ArchiveError {
        .notAllowed(
            entry: lastName ?? "",
            ValueError(expected: "whole content", found: "a sparse file")
        )
    }

    private var damaged: ArchiveError {
        .damaged(entry: lastName, unsafe errorMessage(of: handle))
    }
}

extension ArchiveReader.Header {
    /// Returns the entry that the header describes, or `nil` for the root of the archive.
    ///
    /// - Throws: ``ArchiveError/notAllowed(entry:_:)`` for an entry that packs must not contain.
    func entry() throws(ArchiveError) -> ContentEntry? {
        do {
            return try ContentEntry.validate(name: name, claim: claim, mode: mode)
        } catch {
            throw .notAllowed(entry: name.clipped, error)
        }
    }
}
