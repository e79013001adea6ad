/// The part of a representation that a `Range` field selects (RFC 9110 §14).
enum RangeSelection: Equatable, Sendable {
    /// Everything: no range, several, or none that can be understood.
    case whole
    /// The bytes at these offsets, of which there is at least one.
    case part(Range<Int64>)
    /// A range that lies outside the representation.
    case unsatisfiable

    /// Evaluates the value of a `Range` field against a representation of `size` bytes.
    ///
    /// More than one range is answered with the whole, as §14.2 permits.
    init(_ field: String?, size: Int64) {
        guard let field, let specifier = Self.specifier(in: field),
            let dash = specifier.firstIndex(of: UInt8(ascii: "-"))
        else {
            self = .whole
            return
        }
        let first = specifier[..<dash]
        let last = specifier[specifier.index(after: dash)...]
        switch (Self.number(first), Self.number(last)) {
        case (nil, let length?) where first.isEmpty:
            self = Self.suffix(of: length, size: size)
        case (let start?, nil) where last.isEmpty:
            self = start < size ? .part(start..<size) : .unsatisfiable
        case (let start?, let end?) where start <= end:
            self = start < size ? .part(start..<min(end, size - 1) + 1) : .unsatisfiable
        default:
            self = .whole
        }
    }

    /// Selects the last `length` bytes.
    ///
    /// An empty representation has no part to name, so it is sent whole.
    private static func suffix(of length: Int64, size: Int64) -> RangeSelection {
        if length == 0 { return .unsatisfiable }
        return size == 0 ? .whole : .part(max(0, size - length)..<size)
    }

    /// Returns the one range of a field in bytes, or `nil` if there are more or fewer.
    private static func specifier(in field: String) -> ArraySlice<UInt8>? {
        let bytes = Array(field.utf8)
        guard let equals = bytes.firstIndex(of: UInt8(ascii: "=")),
            String(decoding: bytes[..<equals], as: UTF8.self).lowercased() == "bytes"
        else { return nil }
        let ranges = bytes[(equals + 1)...]
            .split(separator: UInt8(ascii: ","))
            .map(trimmed)
            .filter { !$0.isEmpty }
        return ranges.count == 1 ? ranges[0] : nil
    }

    private static func trimmed(_ bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        let isSpace = { (byte: UInt8) in byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }
        guard let first = bytes.firstIndex(where: { !isSpace($0) }),
            let last = bytes.lastIndex(where: { !isSpace($0) })
        else { return [] }
        return bytes[first...last]
    }

    /// Returns the number that the digits say, `Int64.max - 1` at most, or `nil` for other text.
    private static func number(_ digits: ArraySlice<UInt8>) -> Int64? {
        guard !digits.isEmpty else { return nil }
        var value: Int64 = 0
        for digit in digits {
            guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(digit) else { return nil }
            let (product, overflows) = value.multipliedReportingOverflow(by: 10)
            let (sum, exceeds) = product.addingReportingOverflow(Int64(digit - UInt8(ascii: "0")))
            // A number beyond every size selects like the largest, but all digits are checked.
            value = overflows || exceeds ? .max - 1 : sum
        }
        return value
    }
}
