extension String {
    /// `true` if the text is a token (RFC 9110, section 5.6.2), as names of header fields and methods are.
    package var isHTTPToken: Bool {
        !isEmpty
            && utf8.allSatisfy { byte in
                byte > 0x20 && byte < 0x7F && !"\"(),/:;<=>?@[\\]{}".utf8.contains(byte)
            }
    }

    /// `true` if the text can be the value of a header field (RFC 9110, section 5.5).
    package var isHTTPFieldValue: Bool {
        utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F || $0 == 0x09 }
    }
}
