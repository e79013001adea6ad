import StageModel

/// Reads numbers and byte strings from an encoded index; throws if they are truncated.
struct ByteReader: ~Copyable {
    private let bytes: [UInt8]
    private(set) var offset = 0

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    /// The number of remaining bytes.
    var left: Int { bytes.count - offset }

    func fault(_ reason: String) -> IndexError { IndexError(offset: offset, reason: reason) }

    /// Reads a LEB128 number, which must have its shortest form.
    mutating func number(_ name: String, in range: ClosedRange<UInt64>) throws(IndexError) -> UInt64
    {
        var value: UInt64 = 0
        var shift: UInt64 = 0
        while true {
            guard offset < bytes.count else { throw fault("\(name) is truncated") }
            let byte = bytes[offset]
            let bits = UInt64(byte & 0x7F)
            guard shift < 63 || (shift == 63 && bits <= 1) else {
                throw fault("\(name) has more than 64 bits")
            }
            value |= bits << shift
            offset += 1
            guard byte & 0x80 == 0 else {
                shift += 7
                continue
            }
            guard byte != 0 || shift == 0 else {
                throw fault("\(name) is not in its shortest form")
            }
            guard range.contains(value) else {
                throw fault(
                    "\(name) is \(value), and not within \(range.lowerBound) to \(range.upperBound)"
                )
            }
            return value
        }
    }

    mutating func number(_ name: String, in range: ClosedRange<Int>) throws(IndexError) -> Int {
        Int(try number(name, in: UInt64(range.lowerBound)...UInt64(range.upperBound)))
    }

    /// Reads a signed number in zigzag encoding.
    mutating func difference(_ name: String) throws(IndexError) -> Int64 {
        let value = try number(name, in: 0...UInt64.max)
        return Int64(bitPattern: value >> 1) ^ -Int64(bitPattern: value & 1)
    }

    mutating func slice(_ name: String, count: Int) throws(IndexError) -> ArraySlice<UInt8> {
        guard count <= left else { throw fault("\(name) is truncated") }
        defer { offset += count }
        return bytes[offset..<offset + count]
    }

    mutating func digest(_ name: String) throws(IndexError) -> Digest {
        Digest(bytes: Array(try slice(name, count: Digest.byteCount)))
    }

    /// Checks that no bytes are left.
    func checkEnd() throws(IndexError) {
        guard left == 0 else { throw fault("\(left.quantity(of: "byte")) too many") }
    }
}

extension ByteReader {
    /// Reads the first bytes of a table, which end with the version of its format; errors name the table by `noun`.
    mutating func readMagic(_ expected: [UInt8], of noun: String) throws(IndexError) {
        let magic = try slice("the magic number", count: expected.count)
        guard magic.elementsEqual(expected) else {
            throw IndexError(
                offset: 0,
                reason: magic.dropLast().elementsEqual(expected.dropLast())
                    ? "the \(noun) has version \(magic.last ?? 0) of the format, and this program "
                        + "reads \(expected.last ?? 0)" : "this is no \(noun)"
            )
        }
    }

    /// Reads the size of the rest of a table, and returns that of the whole table, at most ``tableLimit``.
    mutating func tableSize() throws(IndexError) -> Int {
        let rest = try number("the size of the table", in: 0...Self.tableLimit)
        guard offset + rest <= Self.tableLimit else { throw fault("the table is too large") }
        return offset + rest
    }

    /// Checks that these are the bytes of one whole table that says it has `size` bytes.
    func checkTable(size: Int) throws(IndexError) {
        let count = offset + left
        guard size == count else {
            throw fault("the table has \(count.quantity(of: "byte")), and says \(size)")
        }
    }

    /// The maximum number of bytes of a table.
    static var tableLimit: Int { Int(ManifestLimits.deltaTableSize.rawValue) }
}

extension [UInt8] {
    /// Appends a LEB128 number.
    mutating func append(number: UInt64) {
        var rest = number
        while rest >= 0x80 {
            append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        append(UInt8(rest))
    }

    mutating func append(number: Int) { append(number: UInt64(number)) }

    /// Appends a signed number in zigzag encoding.
    mutating func append(difference: Int64) {
        append(number: UInt64(bitPattern: difference << 1 ^ difference >> 63))
    }
}
