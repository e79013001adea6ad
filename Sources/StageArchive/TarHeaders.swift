import StageModel

/// A second parser of tar headers (POSIX.1-2017 and the GNU tar manual), for what libarchive does not report:
/// bytes after a zero in a name, names before their conversion (``StatedNames``), entry types that it treats as
/// files, and attributes that it ignores.
///
/// Decides nothing about content. ``ArchiveReader`` compares the entry offsets of both parsers, so that they
/// never disagree about the entries.
struct TarHeaders {
    /// The first entry that packs must not contain, and the offset of its headers.
    private(set) var fault: (start: Int64, error: ArchiveError)?

    private enum Phase {
        case header
        case extended(TarHeader.Kind)
        case ended
    }

    private var phase = Phase.header
    private var position: Int64 = 0
    /// The bytes of the current header or extended header so far.
    private var gathered: [UInt8] = []
    private var missing = TarHeader.length
    /// The number of content bytes to skip.
    private var skipped: Int64 = 0
    /// Offsets of entries that libarchive has not reached yet.
    private var starts: [Int64] = []
    private var nextStart = 0
    /// Names of entries that libarchive has not reached yet, by offset.
    private var names: [Int64: StatedNames] = [:]
    /// Extended headers of the next entry.
    private var group = TarHeaderGroup()

    /// Returns whether the next entry starts at this offset, and advances to the entry after it.
    mutating func takeEntry(at start: Int64) -> Bool {
        guard nextStart < starts.count, starts[nextStart] == start else { return false }
        nextStart += 1
        if nextStart == starts.count {
            starts.removeAll(keepingCapacity: true)
            nextStart = 0
        }
        return true
    }

    /// Returns the names of the entry that starts at this offset, once.
    mutating func takeNames(at start: Int64) -> StatedNames {
        guard !names.isEmpty else { return StatedNames() }
        return names.removeValue(forKey: start) ?? StatedNames()
    }

    /// Parses the next bytes of the archive.
    mutating func read(_ bytes: UnsafeRawBufferPointer) {
        var rest = unsafe bytes[...]
        while unsafe !rest.isEmpty {
            if case .ended = phase { return }
            if skipped > 0 {
                let step = unsafe min(skipped, Int64(rest.count))
                unsafe rest = rest.dropFirst(Int(step))
                skipped -= step
                position += step
                continue
            }
            let step = unsafe min(missing, rest.count)
            unsafe gathered.append(contentsOf: rest.prefix(step))
            unsafe rest = rest.dropFirst(step)
            missing -= step
            position += Int64(step)
            if missing == 0 { finishPhase() }
        }
    }

    private mutating func finishPhase() {
        let bytes = gathered
        gathered = []
        do throws(ArchiveError) {
            switch phase {
            case .header:
                try read(TarHeader(bytes))
            case .extended(let kind):
                try group.add(bytes, of: kind)
                skipped = Self.padded(Int64(bytes.count)) - Int64(bytes.count)
                begin(.header, length: TarHeader.length)
            case .ended:
                break
            }
        } catch {
            fault = (group.start ?? position - Int64(bytes.count), error)
            phase = .ended
        }
    }

    private mutating func read(_ header: TarHeader) throws(ArchiveError) {
        // libarchive reads nothing after the first block of zeros.
        guard !header.isEmpty else {
            phase = .ended
            return
        }
        let start = group.start ?? position - Int64(TarHeader.length)
        group.start = start
        let kind = try group.kind(of: header)
        guard let size = header.size else {
            throw .damaged(entry: group.name(of: header).clipped, "the size is not a number")
        }
        switch kind {
        case .attributes, .sharedAttributes, .longName, .longTarget:
            guard size <= TarHeaderGroup.maximumLength else {
                throw .damaged(entry: nil, "an extended header is too large")
            }
            begin(.extended(kind), length: Int(size))
        case .file, .hardLink, .other:
            let length = try group.length(of: header, kind, size: size)
            starts.append(start)
            if !group.names.isEmpty { names[start] = group.names }
            group = TarHeaderGroup()
            skipped = Self.padded(length)
            begin(.header, length: TarHeader.length)
        }
    }

    private mutating func begin(_ next: Phase, length: Int) {
        phase = next
        missing = length
        if length == 0 { finishPhase() }
    }

    /// Rounds a number of bytes up to whole blocks.
    private static func padded(_ count: Int64) -> Int64 {
        (count &+ 511) & ~511
    }
}

/// A tar block that describes an entry or announces an extended header.
struct TarHeader {
    static let length = 512

    /// The meaning of a type flag, as far as it matters for content.
    enum Kind: Equatable {
        /// A regular file, followed by its content.
        case file
        case hardLink
        /// A directory, a link or a device, without content.
        case other
        /// Attributes of the next entry, or of all entries.
        case attributes
        case sharedAttributes
        /// GNU's long names.
        case longName
        case longTarget
    }

    private let block: [UInt8]

    /// Wraps a block of ``length`` bytes.
    init(_ block: [UInt8]) { self.block = block }

    var isEmpty: Bool { block.allSatisfy { $0 == 0 } }

    var flag: UInt8 { block[156] }

    /// The kind, or `nil` if packs must not contain it.
    var kind: Kind? {
        switch flag {
        case 0, UInt8(ascii: "0"), UInt8(ascii: "7"): .file
        case UInt8(ascii: "1"): .hardLink
        case UInt8(ascii: "2")...UInt8(ascii: "6"): .other
        case UInt8(ascii: "x"): .attributes
        case UInt8(ascii: "g"): .sharedAttributes
        case UInt8(ascii: "L"): .longName
        case UInt8(ascii: "K"): .longTarget
        default: nil
        }
    }

    /// The size, from leading octal digits or GNU's binary format; `nil` for a binary number that is negative or at
    /// least 4 EiB, whose padded size would overflow.
    var size: Int64? {
        let field = block[124..<136]
        if let first = field.first, first & 0x80 != 0 {
            guard first == 0x80 else { return nil }
            var value: UInt64 = 0
            for byte in field.dropFirst() {
                guard value >> 54 == 0 else { return nil }
                value = value << 8 | UInt64(byte)
            }
            return Int64(value)
        }
        let digits = field.drop { $0 == UInt8(ascii: " ") }.prefix { (0x30...0x37).contains($0) }
        return digits.reduce(0) { $0 << 3 | Int64($1 - 0x30) }
    }

    /// The name in the block, including bytes after a zero.
    var name: [UInt8] {
        let name = Self.text(block[0..<100])
        let prefix = prefix
        return prefix.isEmpty ? name : prefix + [UInt8(ascii: "/")] + name
    }

    var target: [UInt8] { Self.text(block[157..<257]) }

    private var prefix: [UInt8] {
        guard block[257..<263].elementsEqual("ustar\u{0}".utf8) else { return [] }
        // In star's format the prefix field is shorter, and times follow.
        let isStar = block[508..<511].elementsEqual("tar".utf8)
        return Self.text(block[345..<(isStar ? 476 : 500)])
    }

    /// Returns a field without its trailing zeros.
    static func text(_ field: some BidirectionalCollection<UInt8>) -> [UInt8] {
        var bytes = Array(field)
        while bytes.last == 0 { bytes.removeLast() }
        return bytes
    }
}
