/// Random numbers that are the same in each run with the same seed: SplitMix64 (Steele, Lea and Flood,
/// 2014).
package struct SeededGenerator: RandomNumberGenerator, Sendable {
    private var state: UInt64

    /// Begins with a seed.
    package init(seed: UInt64) { state = seed }

    /// Returns the next number; all values of 64 bits are equally likely.
    package mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }
}

/// Returns incompressible bytes, the same for the same seed.
///
/// `mask` is applied to each word of eight bytes: cleared bits make the content compressible.
package func noise(_ count: Int, seed: UInt64 = 1, mask: UInt64 = .max) -> [UInt8] {
    var numbers = SeededGenerator(seed: seed)
    var words = [UInt64](repeating: 0, count: (count + 7) / 8)
    for index in words.indices { words[index] = numbers.next() & mask }
    return unsafe words.withUnsafeBytes { unsafe Array($0.prefix(count)) }
}

/// Returns files that differ from `content`, and from each other, in a byte of each 8 KiB; their names are numbers.
package func nearCopies(of content: [UInt8], count: UInt8) -> [String: [UInt8]] {
    var files: [String: [UInt8]] = [:]
    for number in 0..<count {
        var copy = content
        for offset in stride(from: 5000, to: copy.count, by: 8192) { copy[offset] = number }
        files["\(number)"] = copy
    }
    return files
}

/// Returns bytes like those of a compiled program of about `size` bytes: instructions, each followed by an address.
///
/// All versions have the same instructions, and each has further ones at two places, so that all addresses are others.
package func program(_ size: Int, version: Int) -> [UInt8] {
    let code = noise(size * 3 / 4, seed: 77)
    var bytes: [UInt8] = []
    for (number, start) in stride(from: 0, to: code.count - 12, by: 12).enumerated() {
        if number == size / 50 || number == size / 30 {
            bytes += noise(96 * version, seed: UInt64(version * 10 + number))
        }
        bytes += code[start..<start + 12]
        let address = UInt32(truncatingIfNeeded: number * 7919 + version * 96)
        for shift in stride(from: 0, to: 32, by: 8) as StrideTo<UInt32> {
            bytes.append(UInt8(truncatingIfNeeded: address >> shift))
        }
    }
    return bytes
}
