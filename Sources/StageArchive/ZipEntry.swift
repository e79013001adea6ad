import StageModel

/// One entry of a zip archive's central directory.
struct ZipEntry {
    private var name: String
    private var nameBytes: [UInt8]
    /// The name from the Unicode extra field, if any.
    private var unicodeName: [UInt8]?
    private var flags: Int64
    private var method: Int64
    private var checksum: Int64
    private var compressedSize: Int64
    private var size: Int64
    private var offset: Int64
    private var isLink: Bool
    /// The length of the entry's header in the directory.
    private(set) var headerLength: Int64 = 0

    private static let encryption: Int64 = 1 << 0 | 1 << 6 | 1 << 13
    private static let hasDescriptor: Int64 = 1 << 3

    /// Reads the entry at `position` of the central directory.
    init(central bytes: ZipBytes, at position: Int64, limit: Int64) throws(ArchiveError) {
        guard try bytes.number(at: position, count: 4) == 0x0201_4B50 else {
            throw .damaged(entry: nil, "an entry of the central directory is damaged")
        }
        let nameLength = try bytes.number(at: position + 28, count: 2)
        let extraLength = try bytes.number(at: position + 30, count: 2)
        headerLength =
            46 + nameLength + extraLength + (try bytes.number(at: position + 32, count: 2))
        guard position + headerLength <= limit else {
            throw .damaged(entry: nil, "an entry of the central directory is cut short")
        }
        nameBytes = try bytes.bytes(at: position + 46, count: Int(nameLength))
        name = String(decoding: nameBytes, as: UTF8.self)
        flags = try bytes.number(at: position + 8, count: 2)
        method = try bytes.number(at: position + 10, count: 2)
        checksum = try bytes.number(at: position + 16, count: 4)
        compressedSize = try bytes.number(at: position + 20, count: 4)
        size = try bytes.number(at: position + 24, count: 4)
        offset = try bytes.number(at: position + 42, count: 4)
        let system = try bytes.number(at: position + 5, count: 1)
        let attributes = try bytes.number(at: position + 38, count: 4)
        let mode = [3, 19].contains(system) ? attributes >> 16 : 0
        isLink = mode & 0o170000 == 0o120000
        let extra = try bytes.bytes(at: position + 46 + nameLength, count: Int(extraLength))
        try apply(ZipExtra(extra, of: name), numbers: [\.size, \.compressedSize, \.offset])
        try checkEncryptionAndCompression()
        try checkName(nameBytes)
        if unicodeName != nil { try checkName(statedName) }
        try checkKind(mode)
        // An entry of MS-DOS has no mode, and states in its attributes that it is a directory.
        let isDirectory = mode & 0o170000 == 0o040000 || system == 0 && attributes & 0x10 != 0
        let hasSlash = [nameBytes, statedName].contains { $0.last == UInt8(ascii: "/") }
        if isDirectory || hasSlash { try checkNoContent() }
    }

    /// Reads the local header, and returns the byte range of the entry in the file.
    ///
    /// - Throws: ``ArchiveError`` if the local header differs.
    func extent(in bytes: ZipBytes, limit: Int64) throws(ArchiveError) -> Range<Int64> {
        guard offset >= 0, offset <= limit - 30,
            try bytes.number(at: offset, count: 4) == 0x0403_4B50
        else { throw disagreement("offset") }
        let nameLength = try bytes.number(at: offset + 26, count: 2)
        let extraLength = try bytes.number(at: offset + 28, count: 2)
        let start = offset + 30 + nameLength + extraLength
        guard compressedSize >= 0, start <= limit, compressedSize <= limit - start else {
            throw disagreement("compressed size")
        }
        var local = self
        local.nameBytes = try bytes.bytes(at: offset + 30, count: Int(nameLength))
        local.flags = try bytes.number(at: offset + 6, count: 2)
        local.method = try bytes.number(at: offset + 8, count: 2)
        local.checksum = try bytes.number(at: offset + 14, count: 4)
        local.compressedSize = try bytes.number(at: offset + 18, count: 4)
        local.size = try bytes.number(at: offset + 22, count: 4)
        local.unicodeName = nil
        let extra = try bytes.bytes(at: offset + 30 + nameLength, count: Int(extraLength))
        try local.apply(ZipExtra(extra, of: name), numbers: [\.size, \.compressedSize])
        try compare(local)
        if isLink { try checkTarget(in: bytes, at: start) }
        return offset..<start + compressedSize
    }

    /// Returns the names of an entry whose content has the byte range `extent` with its local header.
    func names(in bytes: ZipBytes, extent: Range<Int64>) throws(ArchiveError) -> StatedNames {
        var names = StatedNames()
        names.path = unicodeName == nil ? StatedNames.unlessASCII(nameBytes) : statedName
        if isLink {
            // The content of a link is stored.
            let target = try bytes.bytes(at: extent.upperBound - size, count: Int(size))
            names.target = StatedNames.unlessASCII(target)
        }
        return names
    }

    /// The bytes of the name: those of a Unicode path field (APPNOTE 4.6.9) if it is about this name, else those
    /// of the header.
    private var statedName: [UInt8] {
        guard let field = unicodeName, field.count >= 5, field[0] == 1,
            field[1..<5].reversed().reduce(0, { $0 << 8 | UInt32($1) }) == nameChecksum
        else { return nameBytes }
        return Array(field[5...])
    }

    /// The CRC-32 (ISO 3309) of the name in the header.
    private var nameChecksum: UInt32 {
        var sum: UInt32 = .max
        for byte in nameBytes {
            sum ^= UInt32(byte)
            for _ in 0..<8 { sum = sum & 1 == 1 ? sum >> 1 ^ 0xEDB8_8320 : sum >> 1 }
        }
        return ~sum
    }

    /// Checks the raw target of a link: libarchive truncates it at a zero byte.
    private func checkTarget(in bytes: ZipBytes, at start: Int64) throws(ArchiveError) {
        let fault: String
        if method != 0 {
            fault = "a compressed target"
        } else if size > Int64(LinkTarget.maximumLength) {
            fault = "a target of \(size.quantity(of: "byte"))"
        } else if try bytes.bytes(at: start, count: Int(size)).contains(0) {
            fault = "a target with a zero byte"
        } else {
            return
        }
        throw .notAllowed(
            entry: name.clipped,
            ValueError(expected: "a link to a stored path", found: fault)
        )
    }

    private func compare(_ local: ZipEntry) throws(ArchiveError) {
        guard local.nameBytes == nameBytes, local.unicodeName == unicodeName else {
            throw disagreement("name")
        }
        guard local.method == method else { throw disagreement("compression") }
        guard local.flags == flags else { throw disagreement("flags") }
        // With a data descriptor these numbers follow the data; here they are 0 or equal.
        let mayBeUnset = flags & Self.hasDescriptor != 0
        let pairs = [
            (local.checksum, checksum, "checksum"),
            (local.compressedSize, compressedSize, "compressed size"),
            (local.size, size, "size"),
        ]
        for (value, truth, word) in pairs
        where value != truth && !(mayBeUnset && value == 0) {
            throw disagreement(word)
        }
    }

    /// Applies the extra fields; `numbers` lists the fields that zip64 may extend, in its order.
    private mutating func apply(
        _ extra: ZipExtra,
        numbers: [WritableKeyPath<ZipEntry, Int64>]
    ) throws(ArchiveError) {
        unicodeName = extra.unicodeName
        var large = extra.largeNumbers[...]
        for path in numbers where self[keyPath: path] == 0xFFFF_FFFF {
            guard let number = large.popFirst() else { throw disagreement("zip64 field") }
            self[keyPath: path] = number
        }
    }

    private func checkEncryptionAndCompression() throws(ArchiveError) {
        guard flags & Self.encryption == 0 else {
            throw .notAllowed(
                entry: name.clipped,
                ValueError(expected: "plain content", found: "an encrypted entry")
            )
        }
        guard method == 0 || method == 8 else {
            throw .notAllowed(
                entry: name.clipped,
                ValueError(expected: "stored or deflated content", found: "method \(method)")
            )
        }
        guard method != 0 || size == compressedSize else { throw disagreement("size") }
    }

    /// Checks a raw name: libarchive changes some names, and truncates them at a zero byte.
    private func checkName(_ bytes: [UInt8]) throws(ArchiveError) {
        let name = String(decoding: bytes, as: UTF8.self)
        guard bytes.elementsEqual(name.utf8) else {
            throw .notAllowed(
                entry: name.clipped,
                ValueError(expected: "a path in UTF-8", text: name)
            )
        }
        do {
            _ = try ContentPath.normalizing(name)
        } catch {
            throw .notAllowed(entry: name.clipped, error)
        }
    }

    /// Checks the file type of the mode (stat(2)): libarchive treats some types as files.
    private func checkKind(_ mode: Int64) throws(ArchiveError) {
        guard [0, 0o040000, 0o100000, 0o120000].contains(mode & 0o170000) else {
            throw .notAllowed(
                entry: name.clipped,
                ValueError(
                    expected: "a file, a directory or a link",
                    found: "mode 0\(String(mode, radix: 8))"
                )
            )
        }
    }

    /// Checks that a directory has no content: libarchive ignores it, and other implementations make a file of it.
    private func checkNoContent() throws(ArchiveError) {
        guard size != 0 else { return }
        throw .notAllowed(
            entry: name.clipped,
            ValueError(
                expected: "a directory without content",
                found: "one of \(size.quantity(of: "byte"))"
            )
        )
    }

    private func disagreement(_ what: String) -> ArchiveError {
        .damaged(
            entry: name.clipped,
            "the local header and the central directory disagree on the \(what)"
        )
    }
}

/// The relevant extra fields of a header.
struct ZipExtra {
    /// The 64-bit numbers of field 0x0001 (zip64).
    private(set) var largeNumbers: [Int64] = []
    /// The raw content of field 0x7075 (Unicode path).
    private(set) var unicodeName: [UInt8]?

    init(_ bytes: [UInt8], of name: String) throws(ArchiveError) {
        var rest = bytes[...]
        while rest.count >= 4 {
            let identifier = Self.number(rest.prefix(2))
            let length = Int(Self.number(rest.dropFirst(2).prefix(2)))
            rest = rest.dropFirst(4)
            guard length <= rest.count else {
                throw .damaged(entry: name.clipped, "an extra field is cut short")
            }
            let field = rest.prefix(length)
            rest = rest.dropFirst(length)
            switch identifier {
            case 0x0001 where largeNumbers.isEmpty:
                for start in stride(from: field.startIndex, through: field.endIndex - 8, by: 8) {
                    largeNumbers.append(Self.number(field[start..<start + 8]))
                }
            case 0x7075 where unicodeName == nil:
                unicodeName = Array(field)
            case 0x0001, 0x7075:
                throw .damaged(entry: name.clipped, "an extra field occurs twice")
            case 0x6C78:
                // libarchive's own field for local headers ('xl'), whose mode would replace the checked one.
                throw .notAllowed(
                    entry: name.clipped,
                    ValueError(
                        expected: "a mode in the central directory alone",
                        found: "extra field 0x6C78"
                    )
                )
            default:
                break
            }
        }
    }

    private static func number(_ bytes: ArraySlice<UInt8>) -> Int64 {
        bytes.reversed().reduce(0) { $0 << 8 | Int64($1) }
    }
}
