/// Type of a frame (RFC 6455, section 5.2).
enum Opcode: UInt8 {
    case continuation = 0
    case text = 1
    case binary = 2
    case close = 8
    case ping = 9
    case pong = 10

    var isControl: Bool { rawValue >= 8 }
}

/// Header of a frame (RFC 6455, section 5.2).
struct FrameHeader: Equatable {
    var opcode: Opcode
    var isFinal = true
    /// `true` if the first reserved bit is set, which marks a compressed message (RFC 7692, section 6).
    var isCompressed = false
    var mask: [UInt8]?
    var length: Int

    static let controlLimit = 125

    init(opcode: Opcode, isCompressed: Bool = false, mask: [UInt8]?, length: Int) {
        self.opcode = opcode
        self.isCompressed = isCompressed
        self.mask = mask
        self.length = length
    }

    /// Parses a header; `nil` if more bytes are needed.
    ///
    /// - Returns: The header and its size in bytes.
    static func read(_ bytes: ArraySlice<UInt8>) throws(WebSocketError) -> (FrameHeader, Int)? {
        guard bytes.count >= 2 else { return nil }
        let first = bytes[bytes.startIndex]
        let second = bytes[bytes.startIndex + 1]
        guard first & 0x30 == 0 else { throw .frame(.reservedBits) }
        guard let opcode = Opcode(rawValue: first & 0x0F) else {
            throw .frame(.reservedOpcode(first & 0x0F))
        }
        var header = FrameHeader(opcode: opcode, mask: nil, length: Int(second & 0x7F))
        header.isFinal = first & 0x80 != 0
        header.isCompressed = first & 0x40 != 0
        if opcode.isControl {
            guard header.isFinal else { throw .frame(.fragmentedControl) }
            guard header.length <= controlLimit else { throw .frame(.longControl) }
            guard !header.isCompressed else { throw .frame(.reservedBits) }
        }
        var position = bytes.startIndex + 2
        let extra = header.length == 126 ? 2 : header.length == 127 ? 8 : 0
        let maskLength = second & 0x80 == 0 ? 0 : 4
        guard bytes.endIndex - position >= extra + maskLength else { return nil }
        if extra > 0 {
            let length = bytes[position..<position + extra].reduce(UInt64(0)) {
                $0 << 8 | UInt64($1)
            }
            let smallest: UInt64 = extra == 2 ? 126 : 1 << 16
            guard length >= smallest, let length = Int(exactly: length) else {
                throw .frame(.length)
            }
            header.length = length
            position += extra
        }
        if maskLength > 0 {
            header.mask = Array(bytes[position..<position + maskLength])
            position += maskLength
        }
        return (header, position - bytes.startIndex)
    }

    /// Appends the header to `output`.
    func write(to output: inout [UInt8]) {
        output.append((isFinal ? 0x80 : 0) | (isCompressed ? 0x40 : 0) | opcode.rawValue)
        let bit: UInt8 = mask == nil ? 0 : 0x80
        switch length {
        case ...125: output.append(bit | UInt8(length))
        case ...0xFFFF:
            output.append(bit | 126)
            output.append(UInt8(length >> 8))
            output.append(UInt8(length & 0xFF))
        default:
            output.append(bit | 127)
            for shift in stride(from: 56, through: 0, by: -8) {
                output.append(UInt8(truncatingIfNeeded: length >> shift))
            }
        }
        if let mask { output += mask }
    }

    /// Applies a mask to a range of bytes, the first of which is at `offset` of its frame (RFC 6455, section 5.3).
    static func apply(
        _ mask: [UInt8],
        to bytes: inout [UInt8],
        in range: Range<Int>,
        from offset: Int
    ) {
        guard !range.isEmpty else { return }
        var word: UInt64 = 0
        for index in 0..<8 { word |= UInt64(mask[(offset + index) & 3]) << UInt64(index * 8) }
        let pattern = word.littleEndian
        unsafe bytes.withUnsafeMutableBytes { buffer in
            var index = range.lowerBound
            while index + 8 <= range.upperBound {
                let value = unsafe buffer.loadUnaligned(fromByteOffset: index, as: UInt64.self)
                unsafe buffer.storeBytes(of: value ^ pattern, toByteOffset: index, as: UInt64.self)
                index += 8
            }
            while index < range.upperBound {
                unsafe buffer[index] ^= mask[(offset + index - range.lowerBound) & 3]
                index += 1
            }
        }
    }
}
