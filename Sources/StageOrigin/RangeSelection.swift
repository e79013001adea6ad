/// Part of a representation that a `Range` field selects (RFC 9110 §14).
enum RangeSelection: Equatable, Sendable {
    /// Everything: there is no range, or several, or an invalid one.
    case whole
    /// Non-empty range of byte offsets.
    case part(Range<Int64>)
    /// Range outside the representation.
    case unsatisfiable

    /// Evaluates a `Range` field for a representation of `size` bytes.
    ///
    /// Several ranges select the whole representation, as §14.2 permits.
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
    /// An empty representation has no such bytes and is sent as a whole.
    private static func suffix(of length: Int64, size: Int64) -> RangeSelection {
        if length == 0 { return .unsatisfiable }
        return size == 0 ? .whole : .part(max(0, size - length)..<size)
    }

    /// Returns the single byte range of a field; `nil` if there is none or more than one.
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

    /// Parses a number, at most `Int64.max - 1`; returns `nil` for other text.
    private static func number(_ digits: ArraySlice<UInt8>) -> Int64? {
        guard !digits.isEmpty else { return nil }
        var value: Int64 = 0
        for digit in digits {
            guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(digit) else { return nil }
            let (product, overflows) = value.multipliedReportingOverflow(by: 10)
            let (sum, exceeds) = product.addingReportingOverflow(Int64(digit - UInt8(ascii: "0")))
            // Clamps numbers beyond any size, but still checks all digits.
            value = overflows || exceeds ? .max - 1 : sum
        }
        return value
    }
}
