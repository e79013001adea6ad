extension String {
    /// Returns the text with all bytes percent-encoded except unreserved ones (RFC 3986, section 2.3) and
    /// those in `kept`.
    package func percentEncoded(keeping kept: Set<UInt8> = []) -> String {
        let digits = Array("0123456789ABCDEF".utf8)
        var encoded: [UInt8] = []
        for byte in utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"),
                UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "~"):
                encoded.append(byte)
            case _ where kept.contains(byte): encoded.append(byte)
            default: encoded += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
            }
        }
        return String(decoding: encoded, as: UTF8.self)
    }
}

extension StringProtocol {
    /// The text with percent-encoding decoded once (RFC 3986, section 2.1), or `nil` if an escape is invalid
    /// or the result is not UTF-8.
    package var percentDecoded: String? {
        var bytes: [UInt8] = []
        var rest = Substring(self).utf8
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard let high = rest.popFirst()?.hexDigitValue,
                let low = rest.popFirst()?.hexDigitValue
            else { return nil }
            bytes.append(high << 4 | low)
        }
        return String(validating: bytes, as: UTF8.self)
    }
}

extension UInt8 {
    /// The value of a hexadecimal digit.
    fileprivate var hexDigitValue: UInt8? {
        Character(Unicode.Scalar(self)).hexDigitValue.map { UInt8($0) }
    }
}
