import StageModel
import SystemPackage

/// The header of a Zstandard frame (RFC 8878, section 3.1.1.1), as far as it determines the decoder's memory.
package struct ZstandardHeader: Equatable, Sendable {
    /// The bytes of content that the decoder keeps.
    package let windowSize: UInt64

    /// The maximum number of bytes of a header, including its magic number.
    package static let maximumLength = 18

    /// Parses the first bytes of a frame; `nil` if they are not a frame.
    package init?(_ bytes: [UInt8]) {
        guard bytes.starts(with: [0x28, 0xB5, 0x2F, 0xFD]), bytes.count > 5 else { return nil }
        let descriptor = bytes[4]
        guard descriptor & 0x20 != 0 else {
            let (exponent, mantissa) = (bytes[5] >> 3, UInt64(bytes[5] & 7))
            let base = UInt64(1) << (10 + UInt64(exponent))
            windowSize = base + base / 8 * mantissa
            return
        }
        // A frame without a window keeps the whole content; its size follows the dictionary id.
        let start = 5 + [0, 1, 2, 4][Int(descriptor & 3)]
        let count = [1, 2, 4, 8][Int(descriptor >> 6)]
        guard bytes.count >= start + count else { return nil }
        let field = bytes[start..<start + count].reversed()
        let size = field.reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        windowSize = count == 2 ? size + 256 : size
    }
}

extension UnpackRequest {
    /// Throws if the decoder of a compressed archive would need more memory than the limits allow.
    ///
    /// Checks the first frame; libzstd refuses frames that need more than 128 MiB.
    func checkWindow() throws(ArchiveError) {
        guard format == .tarZstandard else { return }
        var bytes = [UInt8](repeating: 0, count: ZstandardHeader.maximumLength)
        let count = try? unsafe bytes.withUnsafeMutableBytes { buffer in
            unsafe try archive.read(fromAbsoluteOffset: 0, into: buffer)
        }
        // If the bytes are not a frame or cannot be read, the decoder reports it.
        guard let count, let header = ZstandardHeader(Array(bytes[..<count])) else { return }
        guard header.windowSize <= UInt64(clamping: limits.window.rawValue) else {
            throw .damaged(
                entry: nil,
                "decoding takes \(header.windowSize.quantity(of: "byte")) of memory, more than the "
                    + "\(limits.window.rawValue) that are allowed"
            )
        }
    }
}
