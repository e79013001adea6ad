extension ByteCount: CustomStringConvertible {
    /// The count in decimal units, rounded to one decimal place: `812 B`, `40.2 kB`, `18.4 MB`.
    public var description: String {
        let magnitude = rawValue.magnitude
        guard magnitude >= 1000 else { return "\(rawValue) B" }
        let sign = rawValue < 0 ? "-" : ""
        var tenth: UInt64 = 100
        for unit in ["kB", "MB", "GB"] {
            let tenths = (magnitude + tenth / 2) / tenth
            if tenths < 10000 { return "\(sign)\(tenths / 10).\(tenths % 10) \(unit)" }
            tenth *= 1000
        }
        let tenths = (magnitude + tenth / 2) / tenth
        return "\(sign)\(tenths / 10).\(tenths % 10) TB"
    }
}

extension ByteCount {
    /// Parses a size written by a user: a number with or without decimal places, and a unit.
    ///
    /// `10`, `10B`, `1.5k`, `10 kB`, `10GB` are decimal, like ``description``; `10Ki`, `10GiB` are binary.
    /// Case does not matter. Returns `nil` for all other text: no number, a negative number, an unknown unit,
    /// a fraction without a unit, and 2^62 bytes or more.
    public init?(parsing text: String) {
        let number = text.prefix { $0.isASCII && ($0.isNumber || $0 == ".") }
        var unit = text.dropFirst(number.count)
        if unit.first == " " { unit = unit.dropFirst() }
        let parts = number.split(separator: ".", omittingEmptySubsequences: false)
        guard let scale = Self.scale(of: unit.lowercased()), (1...2).contains(parts.count),
            let whole = Int64(parts[0])
        else { return nil }
        let (bytes, isTooLarge) = whole.multipliedReportingOverflow(by: scale)
        guard !isTooLarge, bytes < 1 << 62 else { return nil }
        rawValue = bytes
        guard parts.count == 2 else { return }
        guard scale > 1, (1...6).contains(parts[1].count), let decimals = Int64(parts[1]) else {
            return nil
        }
        // Below 2^60: six decimal places of 2^40.
        rawValue += parts[1].reduce(decimals * scale) { rest, _ in rest / 10 }
        guard rawValue < 1 << 62 else { return nil }
    }

    /// Returns the bytes of a unit in lower case; `nil` for an unknown unit.
    private static func scale(of unit: String) -> Int64? {
        switch unit {
        case "", "b": 1
        case "k", "kb": 1000
        case "m", "mb": 1_000_000
        case "g", "gb": 1_000_000_000
        case "t", "tb": 1_000_000_000_000
        case "ki", "kib": 1 << 10
        case "mi", "mib": 1 << 20
        case "gi", "gib": 1 << 30
        case "ti", "tib": 1 << 40
        default: nil
        }
    }
}
