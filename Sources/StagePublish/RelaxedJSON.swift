import StageModel

/// Relaxed JSON, with comments and trailing commas.
enum RelaxedJSON {
    /// Returns the text as strict JSON that keeps each character's line and column.
    ///
    /// Replaces comments (`// …` and `/* … */`) and commas before `]` and `}` with spaces. Other invalid text
    /// stays for the parser to report.
    static func strict(_ bytes: [UInt8]) throws(ManifestError) -> [UInt8] {
        var reader = Reader(bytes: bytes)
        while reader.position < bytes.count { try reader.step() }
        return reader.output
    }

    private struct Reader {
        let bytes: [UInt8]
        var position = 0
        var output: [UInt8] = []
        /// The last byte outside of white space and comments.
        private var previous: UInt8?
        /// The output position of a comma that may be a trailing one.
        private var comma: Int?

        init(bytes: [UInt8]) {
            self.bytes = bytes
            output.reserveCapacity(bytes.count)
        }

        mutating func step() throws(ManifestError) {
            let byte = bytes[position]
            switch byte {
            case UInt8(ascii: "/") where bytes[position...].starts(with: "//".utf8):
                let end = bytes[position...].firstIndex(of: UInt8(ascii: "\n")) ?? bytes.count
                blank(upTo: end)
            case UInt8(ascii: "/") where bytes[position...].starts(with: "/*".utf8):
                blank(upTo: try endOfBlock())
            case 0x20, 0x09, 0x0A, 0x0D:
                copy(upTo: position + 1)
            default:
                take(byte)
            }
        }

        private mutating func take(_ byte: UInt8) {
            let ends = byte == UInt8(ascii: "]") || byte == UInt8(ascii: "}")
            if ends, let comma { output[comma] = UInt8(ascii: " ") }
            comma = nil
            if byte == UInt8(ascii: ","), let previous, !"[{,:".utf8.contains(previous) {
                comma = output.count
            }
            previous = byte
            copy(upTo: byte == UInt8(ascii: "\"") ? endOfString() : position + 1)
        }

        private func endOfString() -> Int {
            var end = position + 1
            while end < bytes.count {
                switch bytes[end] {
                case UInt8(ascii: "\""): return end + 1
                case UInt8(ascii: "\\"): end += 2
                default: end += 1
                }
            }
            return bytes.count
        }

        private func endOfBlock() throws(ManifestError) -> Int {
            var end = position + 2
            while end + 1 < bytes.count {
                if bytes[end] == UInt8(ascii: "*"), bytes[end + 1] == UInt8(ascii: "/") {
                    return end + 2
                }
                end += 1
            }
            let line = output.count { $0 == UInt8(ascii: "\n") } + 1
            let start = output.lastIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? 0
            let column = output[start...].count { $0 & 0xC0 != 0x80 } + 1
            throw .notJSON(
                "line \(line), column \(column): expected '*/' that ends the comment, found none"
            )
        }

        private mutating func copy(upTo end: Int) {
            output += bytes[position..<end]
            position = end
        }

        /// Replaces each character with a space, and keeps line breaks.
        private mutating func blank(upTo end: Int) {
            for byte in bytes[position..<end] where byte & 0xC0 != 0x80 {
                output.append(byte == UInt8(ascii: "\n") ? byte : UInt8(ascii: " "))
            }
            position = end
        }
    }
}
