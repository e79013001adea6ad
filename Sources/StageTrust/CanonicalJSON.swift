package import StageModel

/// Canonical JSON (OLPC): the unique byte sequence of a JSON value that signatures and key ids are computed
/// over.
///
/// Members are sorted by the bytes of their names, there is no white space, strings are UTF-8 with only `"`
/// and `\` escaped, and all numbers are integers.
package enum CanonicalJSON {
    /// Returns the canonical form of a value.
    ///
    /// - Throws: ``ManifestError/invalid(member:_:)`` for a number that is not an integer.
    package static func bytes(of node: JSONNode) throws(ManifestError) -> [UInt8] {
        var writer = Writer(path: node.path)
        try writer.write(node.value)
        return writer.bytes
    }

    private struct Writer {
        var bytes: [UInt8] = []
        var path: [JSONNode.Step]

        mutating func write(_ value: JSONTree) throws(ManifestError) {
            switch value {
            case .null: bytes += "null".utf8
            case .boolean(let value): bytes += (value ? "true" : "false").utf8
            case .integer(let value): bytes += String(value).utf8
            case .number: throw fault(value)
            case .string(let value): write(value)
            case .array(let values): try write(values)
            case .object(let members): try write(members)
            }
        }

        private func fault(_ number: JSONTree) -> ManifestError {
            .invalid(
                member: ManifestError.path(path),
                ValueError(
                    expected: "an integer of 64 bits, as signed data has no other numbers",
                    found: number.noun
                )
            )
        }

        private mutating func write(_ text: String) {
            bytes.append(UInt8(ascii: "\""))
            for byte in text.utf8 {
                if byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") {
                    bytes.append(UInt8(ascii: "\\"))
                }
                bytes.append(byte)
            }
            bytes.append(UInt8(ascii: "\""))
        }

        private mutating func write(_ values: [JSONTree]) throws(ManifestError) {
            bytes.append(UInt8(ascii: "["))
            for (index, value) in values.enumerated() {
                if index > 0 { bytes.append(UInt8(ascii: ",")) }
                path.append(.element(index))
                try write(value)
                path.removeLast()
            }
            bytes.append(UInt8(ascii: "]"))
        }

        private mutating func write(_ members: [JSONTree.Member]) throws(ManifestError) {
            // 'String' compares normalized text, but the format requires byte order.
            let sorted = members.sorted { left, right in
                left.name.utf8.lexicographicallyPrecedes(right.name.utf8)
            }
            bytes.append(UInt8(ascii: "{"))
            for (index, member) in sorted.enumerated() {
                if index > 0 { bytes.append(UInt8(ascii: ",")) }
                write(member.name)
                bytes.append(UInt8(ascii: ":"))
                path.append(.member(member.name))
                try write(member.value)
                path.removeLast()
            }
            bytes.append(UInt8(ascii: "}"))
        }
    }
}
