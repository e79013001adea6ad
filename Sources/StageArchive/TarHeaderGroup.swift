import StageModel

/// The extended headers of one tar entry, and their effects on it.
struct TarHeaderGroup {
    /// The largest extended header in bytes, the same as libarchive's limit.
    static let maximumLength: Int64 = 1 << 20

    /// The maximum number of bytes of a key that is compared with others: extended attributes have names of at most 255
    /// bytes (xattr(7)), and comparing a long key of combining characters takes hours.
    private static let maximumKeyLength = 512

    /// The offset of the entry's first header.
    var start: Int64?
    private var kinds: [TarHeader.Kind] = []
    private var longName: [UInt8]?
    private var longTarget: [UInt8]?
    /// The names from pax records, as far as they determine the entry's names.
    private(set) var names = StatedNames()
    private var size: Int64?
    /// A fault of the entry, kept until its name is known.
    private var broken: ValueError?

    /// Attributes that do not affect a pack's content: the owner, times and the system of origin.
    private static let ignored: Set<String> = [
        "uid", "gid", "uname", "gname", "atime", "mtime", "ctime", "comment", "charset",
        "hdrcharset", "path", "linkpath", "size", "LIBARCHIVE.creationtime",
        "LIBARCHIVE.symlinktype", "SCHILY.dev", "SCHILY.ino", "SCHILY.nlink", "SCHILY.fflags",
        "RHT.security.selinux",
    ]
    /// Extended attributes that systems add to files: labels and signatures that apply only to the original
    /// location.
    private static let ignoredAttributes = [
        "security.selinux", "security.ima", "security.evm", "com.apple.",
    ]
    /// Global attributes that would change an entry; libarchive ignores them, so they are refused.
    private static let neverShared: Set<String> = ["path", "linkpath", "size", "hdrcharset"]

    /// Returns the kind of a header of this group.
    ///
    /// - Throws: ``ArchiveError`` for a kind that packs must not contain, for a name with a zero byte, and
    ///   for a fault of an extended header.
    mutating func kind(of header: TarHeader) throws(ArchiveError) -> TarHeader.Kind {
        let name = name(of: header)
        guard let kind = header.kind else {
            let flag = header.flag
            let found =
                flag == UInt8(ascii: "S")
                ? "a sparse file"
                : "tar type '\(String(decoding: [flag], as: UTF8.self).forDisplay())'"
            throw .notAllowed(
                entry: name.clipped,
                ValueError(expected: "a file, a directory or a link", found: found)
            )
        }
        if let broken, [.file, .hardLink, .other].contains(kind) {
            throw .notAllowed(entry: name.clipped, broken)
        }
        for text in [header.name, header.target] where text.contains(0) {
            throw .notAllowed(entry: name.clipped, Self.zero(in: text))
        }
        return kind
    }

    /// Returns the name of the entry, as far as it is known.
    func name(of header: TarHeader) -> String {
        String(decoding: longName ?? header.name, as: UTF8.self)
    }

    /// Returns the number of content bytes that follow an entry's header.
    func length(
        of header: TarHeader,
        _ kind: TarHeader.Kind,
        size: Int64
    ) throws(ArchiveError) -> Int64 {
        if kind == .file { return self.size ?? size }
        // Implementations differ in whether content follows such a header, so there must be none.
        guard self.size ?? 0 == 0, kind != .hardLink || size == 0 else {
            throw .notAllowed(
                entry: name(of: header).clipped,
                ValueError(expected: "no content but of files", found: "content")
            )
        }
        return 0
    }

    /// Adds the content of an extended header.
    ///
    /// - Throws: ``ArchiveError/damaged(entry:_:)`` for an invalid header, and for a second one of the same
    ///   kind.
    mutating func add(_ bytes: [UInt8], of kind: TarHeader.Kind) throws(ArchiveError) {
        guard !kinds.contains(kind) || kind == .sharedAttributes else {
            throw .damaged(entry: nil, "an extended header occurs twice")
        }
        kinds.append(kind)
        switch kind {
        case .longName:
            longName = TarHeader.text(bytes)
            if let longName { note(longName) }
        case .longTarget:
            longTarget = TarHeader.text(bytes)
            if let longTarget { note(longTarget) }
        default:
            try readRecords(bytes[...], areShared: kind == .sharedAttributes)
        }
    }

    /// Reads records of the form `<length> <key>=<value>\n`.
    private mutating func readRecords(
        _ bytes: ArraySlice<UInt8>,
        areShared: Bool
    ) throws(ArchiveError) {
        var rest = bytes
        while !rest.isEmpty {
            let digits = rest.prefix { (0x30...0x39).contains($0) }
            guard (1...7).contains(digits.count) else { throw Self.damaged }
            let length = digits.reduce(0) { $0 * 10 + Int($1 - 0x30) }
            guard length > digits.count + 3, length <= rest.count else { throw Self.damaged }
            let record = rest.prefix(length).dropFirst(digits.count)
            guard record.first == UInt8(ascii: " "), record.last == UInt8(ascii: "\n"),
                let equals = record.firstIndex(of: UInt8(ascii: "="))
            else { throw Self.damaged }
            let key = String(decoding: record[record.startIndex + 1..<equals], as: UTF8.self)
            try take(key, value: Array(record[(equals + 1)...].dropLast()), isShared: areShared)
            rest = rest.dropFirst(length)
        }
    }

    private mutating func take(
        _ key: String,
        value: [UInt8],
        isShared: Bool
    ) throws(ArchiveError) {
        guard key.utf8.count <= Self.maximumKeyLength,
            Self.ignored.contains(key) || Self.isIgnoredAttribute(key),
            !isShared || !Self.neverShared.contains(key)
        else {
            let isSparse = key.utf8.starts(with: "GNU.sparse.".utf8)
            let found = isSparse ? "a sparse file" : "attribute '\(key)'"
            note(ValueError(expected: "content, names and modes alone", text: found))
            return
        }
        switch key {
        case "path":
            longName = value
            note(value)
            // If two headers state a name, libarchive uses the first.
            if !kinds.contains(.longName) { names.path = StatedNames.unlessASCII(value) }
        case "linkpath":
            note(value)
            if !kinds.contains(.longTarget) { names.target = StatedNames.unlessASCII(value) }
        case "size":
            let digits = value.prefix { (0x30...0x39).contains($0) }
            guard digits.count == value.count, (1...18).contains(value.count) else {
                throw Self.damaged
            }
            size = digits.reduce(0) { $0 * 10 + Int64($1 - 0x30) }
        default:
            break
        }
    }

    private static func isIgnoredAttribute(_ key: String) -> Bool {
        for prefix in ["SCHILY.xattr.", "LIBARCHIVE.xattr."] where key.hasPrefix(prefix) {
            let name = key.dropFirst(prefix.count)
            return ignoredAttributes.contains { ignored in
                ignored.hasSuffix(".") ? name.hasPrefix(ignored) : name == ignored
            }
        }
        return false
    }

    /// Records a fault if a name contains a zero byte.
    private mutating func note(_ name: [UInt8]) {
        if name.contains(0) { note(Self.zero(in: name)) }
    }

    private mutating func note(_ fault: ValueError) {
        if broken == nil { broken = fault }
    }

    private static func zero(in text: [UInt8]) -> ValueError {
        ValueError(
            expected: "a path without a zero byte",
            text: String(decoding: text, as: UTF8.self)
        )
    }

    private static let damaged = ArchiveError.damaged(
        entry: nil,
        "an extended header is not made of records"
    )
}
