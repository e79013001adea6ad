/// Incremental validation of UTF-8 (RFC 3629), in pieces that may end within a character.
///
/// A byte is rejected as soon as no continuation can make it valid.
struct UTF8Check {
    /// Number of continuation bytes that the current character still needs.
    private var missing = 0
    /// Valid values of the next continuation byte.
    private var next: ClosedRange<UInt8> = 0x80...0xBF

    /// `true` if the bytes so far end with a complete character.
    var isComplete: Bool { missing == 0 }

    /// Checks the next bytes, and returns whether they can be part of valid text.
    mutating func take(_ bytes: UnsafeRawBufferPointer) -> Bool {
        var index = 0
        let count = bytes.count
        while index < count {
            if missing == 0, index + 8 <= count {
                let word = unsafe bytes.loadUnaligned(fromByteOffset: index, as: UInt64.self)
                if word & 0x8080_8080_8080_8080 == 0 {
                    index += 8
                    continue
                }
            }
            guard take(unsafe bytes[index]) else { return false }
            index += 1
        }
        return true
    }

    private mutating func take(_ byte: UInt8) -> Bool {
        if missing > 0 {
            guard next.contains(byte) else { return false }
            missing -= 1
            next = 0x80...0xBF
            return true
        }
        switch byte {
        case 0x00...0x7F: return true
        case 0xC2...0xDF: missing = 1
        case 0xE0: (missing, next) = (2, 0xA0...0xBF)
        case 0xED: (missing, next) = (2, 0x80...0x9F)
        case 0xE1...0xEF: missing = 2
        case 0xF0: (missing, next) = (3, 0x90...0xBF)
        case 0xF1...0xF3: missing = 3
        case 0xF4: (missing, next) = (3, 0x80...0x8F)
        default: return false
        }
        return true
    }
}
