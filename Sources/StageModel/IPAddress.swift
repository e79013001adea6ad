/// A numeric IP address.
package struct IPAddress: Hashable, Sendable {
    /// The eight words of an IPv6 address; an IPv4 address is mapped to `::ffff:0:0/96` (RFC 4291, section
    /// 2.5.5.2).
    private let words: [UInt16]

    /// Parses an IPv4 address of four plain decimal numbers.
    package init?(ipv4 text: String) {
        guard let numbers = Self.numbers(ofIPv4: text[...]) else { return nil }
        words = [0, 0, 0, 0, 0, 0xFFFF] + Self.words(of: numbers)
    }

    /// Parses an IPv6 address (RFC 4291, section 2.2), without brackets and zone.
    package init?(ipv6 text: String) {
        let halves = text.split(separator: "::", omittingEmptySubsequences: false)
        var read: [[UInt16]] = []
        for (index, half) in halves.enumerated() {
            guard let words = Self.words(ofHalf: half, isLast: index == halves.count - 1) else {
                return nil
            }
            read.append(words)
        }
        switch read.count {
        case 1 where read[0].count == 8: words = read[0]
        case 2 where read[0].count + read[1].count < 8:
            let missing = 8 - read[0].count - read[1].count
            words = read[0] + Array(repeating: 0, count: missing) + read[1]
        default: return nil
        }
    }

    /// Indicates whether the address is a loopback address: 127.0.0.0/8, also mapped to IPv6, or ::1.
    var isLoopback: Bool {
        if words == [0, 0, 0, 0, 0, 0, 0, 1] { return true }
        return words.prefix(6) == [0, 0, 0, 0, 0, 0xFFFF] && words[6] >> 8 == 127
    }

    private static func words(of numbers: [UInt8]) -> [UInt16] {
        [
            UInt16(numbers[0]) << 8 | UInt16(numbers[1]),
            UInt16(numbers[2]) << 8 | UInt16(numbers[3]),
        ]
    }

    private static func numbers(ofIPv4 text: Substring) -> [UInt8]? {
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        let numbers = parts.compactMap { part -> UInt8? in
            // 'UInt8' also accepts a sign and leading zeros, which some resolvers read as octal.
            UInt8(part).flatMap { String($0) == part ? $0 : nil }
        }
        return parts.count == 4 && numbers.count == 4 ? numbers : nil
    }

    /// Parses words between colons; the last two may be an IPv4 address.
    private static func words(ofHalf text: Substring, isLast: Bool) -> [UInt16]? {
        guard !text.isEmpty else { return [] }
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        var words: [UInt16] = []
        for (index, part) in parts.enumerated() {
            let isHexadecimal = part.utf8.allSatisfy(\.isASCIIHexDigit)
            if (1...4).contains(part.utf8.count), isHexadecimal,
                let word = UInt16(part, radix: 16)
            {
                words.append(word)
            } else if isLast, index == parts.count - 1, let numbers = numbers(ofIPv4: part) {
                words += Self.words(of: numbers)
            } else {
                return nil
            }
        }
        return words
    }
}

extension IPAddress: CustomStringConvertible {
    /// The address in the format of RFC 5952, section 4, without dotted decimals: the longest run of zeros is
    /// `::`.
    package var description: String {
        var zeros = 0..<0
        var start = 0
        for index in 0...8 where index == 8 || words[index] != 0 {
            if index - start > max(zeros.count, 1) { zeros = start..<index }
            start = index + 1
        }
        func text(_ words: ArraySlice<UInt16>) -> String {
            words.map { String($0, radix: 16) }.joined(separator: ":")
        }
        guard !zeros.isEmpty else { return text(words[...]) }
        return "\(text(words[..<zeros.lowerBound]))::\(text(words[zeros.upperBound...]))"
    }
}
