/// A tar archive that is built byte by byte, so that tests can make any part of it wrong.
package struct TarBuilder: Sendable {
    /// The bytes so far.
    package private(set) var bytes: [UInt8] = []

    /// The kind of an entry, by its type flag.
    package enum Kind: Character, Sendable {
        case file = "0"
        case hardLink = "1"
        case link = "2"
        case characterDevice = "3"
        case blockDevice = "4"
        case directory = "5"
        case fifo = "6"
        case sparse = "S"
        case pax = "x"
        case sharedPax = "g"
        case longName = "L"
        case longTarget = "K"
    }

    /// An entry, with the values of its header.
    package struct Entry: Sendable {
        /// The name, in any bytes; at most 100 of them are kept.
        package var name: [UInt8]
        /// The kind of the entry.
        package var kind: Kind
        /// The permission bits.
        package var mode: Int
        /// The bytes that follow the header.
        package var content: [UInt8]
        /// The size in the header; `nil` for the actual size.
        package var size: Int?
        /// The target of a link.
        package var target: String
        /// The type flag, if it is none of the kinds.
        package var flag: Character?

        /// Creates an entry from its parts.
        package init(
            _ name: String,
            _ kind: Kind = .file,
            content: [UInt8] = [],
            mode: Int = 0o644,
            target: String = ""
        ) {
            self.name = Array(name.utf8)
            self.kind = kind
            self.mode = mode
            self.content = content
            self.target = target
        }
    }

    /// Creates an archive without entries.
    package init() {}

    /// Creates a whole archive of entries.
    package init(_ entries: Entry...) {
        for entry in entries { add(entry) }
        finish()
    }

    /// Adds an entry in the ustar format.
    package mutating func add(_ entry: Entry) {
        var header = [UInt8](repeating: 0, count: 512)
        func put(_ bytes: [UInt8], at offset: Int) {
            header.replaceSubrange(offset..<offset + bytes.count, with: bytes)
        }
        func octal(_ number: Int, _ width: Int) -> [UInt8] {
            let digits = Array(String(number, radix: 8).utf8)
            return [UInt8](repeating: 0x30, count: max(0, width - digits.count)) + digits
        }
        put(Array(entry.name.prefix(100)), at: 0)
        put(octal(entry.mode, 7), at: 100)
        put(octal(0, 7), at: 108)
        put(octal(0, 7), at: 116)
        put(octal(entry.size ?? entry.content.count, 11), at: 124)
        put(octal(0, 11), at: 136)
        put(Array(String(entry.flag ?? entry.kind.rawValue).utf8), at: 156)
        put(Array(entry.target.utf8.prefix(100)), at: 157)
        put(Array("ustar\u{0}00".utf8), at: 257)
        put([UInt8](repeating: 0x20, count: 8), at: 148)
        put(octal(header.reduce(0) { $0 + Int($1) }, 6) + [0], at: 148)
        append(header)
        append(entry.content)
    }

    /// Adds a pax header for the entry that is added next.
    package mutating func addPax(kind: Kind = .pax, _ records: (String, String)...) {
        var content: [UInt8] = []
        for (key, value) in records {
            let rest = " \(key)=\(value)\n"
            var length = rest.utf8.count + 1
            while String(length).utf8.count + rest.utf8.count != length { length += 1 }
            content += Array("\(length)\(rest)".utf8)
        }
        add(Entry("pax", kind, content: content))
    }

    /// Adds a GNU sparse file of the old format: one piece of data in a file of `size` bytes.
    package mutating func addSparse(_ name: String, size: Int) {
        let start = bytes.count
        var entry = Entry(name, .sparse, content: [UInt8](repeating: 0x41, count: 512))
        entry.size = 512
        add(entry)
        func put(_ text: String, at offset: Int) {
            bytes.replaceSubrange(start + offset..<start + offset + 12, with: text.utf8 + [0])
        }
        func octal(_ number: Int) -> String {
            let digits = String(number, radix: 8)
            return String(repeating: "0", count: 11 - digits.count) + digits
        }
        put(octal(size - 512), at: 386)
        put(octal(512), at: 398)
        put(octal(size), at: 483)
        bytes.replaceSubrange(start + 257..<start + 265, with: Array("ustar  \u{0}".utf8))
        fixChecksum(at: start)
    }

    /// Adds the end marker.
    package mutating func finish() {
        bytes += [UInt8](repeating: 0, count: 1024)
    }

    /// Adds bytes as they are, padded to a block.
    package mutating func append(_ more: [UInt8]) {
        bytes += more
        bytes += [UInt8](repeating: 0, count: (512 - more.count % 512) % 512)
    }

    private mutating func fixChecksum(at start: Int) {
        bytes.replaceSubrange(start + 148..<start + 156, with: [UInt8](repeating: 0x20, count: 8))
        let sum = bytes[start..<start + 512].reduce(0) { $0 + Int($1) }
        let digits = String(sum, radix: 8)
        let text = String(repeating: "0", count: 6 - digits.count) + digits
        bytes.replaceSubrange(start + 148..<start + 155, with: text.utf8 + [0])
    }
}
