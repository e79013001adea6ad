/// A zip archive of stored entries that is built byte by byte, so that tests can make any part of it wrong.
package struct ZipBuilder: Sendable {
    /// An entry, with the values of both of its headers.
    package struct Entry: Sendable {
        /// The name in the central directory.
        package var name: [UInt8]
        /// The content.
        package var content: [UInt8]
        /// The mode of stat(2), file type included.
        package var mode: UInt32
        /// The name in the local header; `nil` for the same.
        package var localName: [UInt8]?
        /// The general purpose flags; bit 11 says that the name is UTF-8.
        package var flags: UInt16 = 1 << 11
        /// The flags in the local header; `nil` for the same.
        package var localFlags: UInt16?
        /// The compression method in the headers; the content is always stored uncompressed.
        package var method: UInt16 = 0
        /// The compression method in the local header; `nil` for the same.
        package var localMethod: UInt16?
        /// The size in the local header; `nil` for the actual size.
        package var localSize: UInt32?
        /// The checksum in both headers; `nil` for the actual one.
        package var checksum: UInt32?
        /// Writes size and checksum after the content instead of in the local header.
        package var hasDescriptor = false
        /// The name in a Unicode path field (0x7075) of both headers; `nil` for no field.
        package var unicodeName: [UInt8]?
        /// The version of the Unicode path field; 1 is the only one.
        package var unicodeVersion: UInt8 = 1
        /// The mode in an 'xl' field (0x6C78) of the local header; `nil` for no field.
        package var localMode: UInt32?
        /// Makes the central directory point to the first entry's local header.
        package var sharesFirst = false

        /// Creates an entry from its parts.
        package init(_ name: String, content: [UInt8] = [], mode: UInt32 = 0o100644) {
            self.name = Array(name.utf8)
            self.content = content
            self.mode = mode
        }
    }

    /// The bytes of the archive.
    package private(set) var bytes: [UInt8] = []

    /// Creates a whole archive of entries.
    package init(_ entries: Entry...) { self.init(entries) }

    /// Creates a whole archive of entries; with `isReversed`, the central directory has the last entry first.
    package init(_ entries: [Entry], isReversed: Bool = false) {
        var headers: [[UInt8]] = []
        for entry in entries {
            let offset = entry.sharesFirst ? 0 : bytes.count
            if !entry.sharesFirst { bytes += Self.local(entry) }
            headers.append(Self.central(entry, offset: offset))
        }
        let start = bytes.count
        let directory = Array((isReversed ? headers.reversed() : headers).joined())
        bytes += directory
        bytes += Self.little(0x0605_4B50, 4) + Self.little(0, 4)
        bytes += Self.little(entries.count, 2) + Self.little(entries.count, 2)
        bytes += Self.little(directory.count, 4) + Self.little(start, 4) + Self.little(0, 2)
    }

    private static func local(_ entry: Entry) -> [UInt8] {
        let name = entry.localName ?? entry.name
        let sum = Int(entry.checksum ?? checksum(of: entry.content))
        let size = Int(entry.localSize ?? UInt32(entry.content.count))
        var flags = Int(entry.localFlags ?? entry.flags)
        if entry.hasDescriptor { flags |= 1 << 3 }
        var header = little(0x0403_4B50, 4) + little(20, 2) + little(flags, 2)
        header += little(Int(entry.localMethod ?? entry.method), 2) + little(0x21_0000, 4)
        let numbers = little(sum, 4) + little(size, 4) + little(size, 4)
        header += entry.hasDescriptor ? [UInt8](repeating: 0, count: 12) : numbers
        let extra = extra(entry) + mode(entry)
        header += little(name.count, 2) + little(extra.count, 2) + name + extra + entry.content
        return entry.hasDescriptor ? header + little(0x0807_4B50, 4) + numbers : header
    }

    private static func central(_ entry: Entry, offset: Int) -> [UInt8] {
        let flags = Int(entry.flags) | (entry.hasDescriptor ? 1 << 3 : 0)
        var header = little(0x0201_4B50, 4) + little(3 << 8 | 20, 2) + little(20, 2)
        header += little(flags, 2) + little(Int(entry.method), 2) + little(0x21_0000, 4)
        header += little(Int(entry.checksum ?? checksum(of: entry.content)), 4)
        header += little(entry.content.count, 4) + little(entry.content.count, 4)
        let extra = extra(entry)
        header += little(entry.name.count, 2) + little(extra.count, 2)
        header += little(0, 2) + little(0, 4)
        header += little(Int(entry.mode) << 16, 4) + little(offset, 4)
        return header + entry.name + extra
    }

    private static func extra(_ entry: Entry) -> [UInt8] {
        guard let name = entry.unicodeName else { return [] }
        return little(0x7075, 2) + little(5 + name.count, 2) + [entry.unicodeVersion]
            + little(Int(checksum(of: entry.name)), 4) + name
    }

    /// The 'xl' field with the version and the attributes of an entry.
    private static func mode(_ entry: Entry) -> [UInt8] {
        guard let mode = entry.localMode else { return [] }
        return little(0x6C78, 2) + little(7, 2) + [0b101] + little(3 << 8 | 20, 2)
            + little(Int(mode) << 16, 4)
    }

    private static func little(_ number: Int, _ count: Int) -> [UInt8] {
        (0..<count).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) }
    }

    /// CRC-32 as of ISO 3309, bit by bit.
    package static func checksum(of bytes: [UInt8]) -> UInt32 {
        var sum: UInt32 = .max
        for byte in bytes {
            sum ^= UInt32(byte)
            for _ in 0..<8 { sum = sum & 1 == 1 ? sum >> 1 ^ 0xEDB8_8320 : sum >> 1 }
        }
        return ~sum
    }
}
