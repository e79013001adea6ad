/// A URL or relative reference, split into the five parts of RFC 3986, appendix B; any text can be split.
package struct URLReference: Equatable {
    var scheme: Substring?
    var authority: Substring?
    var path: Substring
    var query: Substring?
    var fragment: Substring?

    /// Splits a text.
    package init(_ text: String) {
        var rest = Substring(text)
        if let hash = rest.firstIndex(ofByte: UInt8(ascii: "#")) {
            fragment = Substring(rest.utf8[hash...].dropFirst())
            rest = rest[..<hash]
        }
        if let mark = rest.firstIndex(ofByte: UInt8(ascii: "?")) {
            query = Substring(rest.utf8[mark...].dropFirst())
            rest = rest[..<mark]
        }
        let end = rest.utf8.firstIndex { $0 == UInt8(ascii: ":") || $0 == UInt8(ascii: "/") }
        if let end, rest.utf8[end] == UInt8(ascii: ":"), Self.isScheme(rest[..<end]) {
            scheme = rest[..<end]
            rest = Substring(rest.utf8[end...].dropFirst())
        }
        if rest.utf8.starts(with: "//".utf8) {
            rest = Substring(rest.utf8.dropFirst(2))
            let end = rest.firstIndex(ofByte: UInt8(ascii: "/")) ?? rest.endIndex
            authority = rest[..<end]
            rest = rest[end...]
        }
        path = rest
    }

    /// The recombined text (RFC 3986, section 5.3).
    package var text: String {
        var text = ""
        if let scheme { text += "\(scheme):" }
        if let authority { text += "//\(authority)" }
        text += path
        if let query { text += "?\(query)" }
        if let fragment { text += "#\(fragment)" }
        return text
    }

    /// Resolves `reference` against this base URL (RFC 3986, section 5.2.2).
    func resolving(_ reference: URLReference) -> URLReference {
        var target = reference
        if reference.scheme == nil {
            target.scheme = scheme
            if reference.authority == nil {
                target.authority = authority
                if reference.path.isEmpty {
                    target.path = path
                    target.query = reference.query ?? query
                    return target
                }
                if reference.path.utf8.first != UInt8(ascii: "/") {
                    target.path = merging(reference.path)
                }
            }
        }
        target.path = Self.removingDotSegments(target.path)
        return target
    }

    /// Replaces the last component of this path with `relative` (RFC 3986, section 5.2.3).
    private func merging(_ relative: Substring) -> Substring {
        if authority != nil, path.isEmpty { return "/" + relative }
        guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return relative }
        return path[...slash] + relative
    }

    /// Removes `.` and `..` components without going above the root (RFC 3986, section 5.2.4).
    static func removingDotSegments(_ path: Substring) -> Substring {
        let isAbsolute = path.utf8.first == UInt8(ascii: "/")
        let parts = path.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
            .map { Substring($0) }
        var kept: [Substring] = []
        for (index, part) in parts.dropFirst(isAbsolute ? 1 : 0).enumerated() {
            let isLast = index == parts.count - (isAbsolute ? 2 : 1)
            switch part {
            case ".":
                if isLast { kept.append("") }
            case "..":
                if !kept.isEmpty { kept.removeLast() }
                if isLast { kept.append("") }
            default:
                kept.append(part)
            }
        }
        return Substring((isAbsolute ? "/" : "") + kept.joined(separator: "/"))
    }

    private static func isScheme(_ text: Substring) -> Bool {
        guard let first = text.utf8.first, first.isASCIILetter else { return false }
        return text.utf8.allSatisfy {
            $0.isASCIILetter || $0.isASCIIDigit || "+-.".utf8.contains($0)
        }
    }
}

extension URLReference {
    /// The forms of a URL that a manifest or registration may use.
    package enum Form {
        case absolute, absoluteOrRelative
    }

    /// Checks a URL: http, https, file or, if `form` allows it, relative; without user name, password,
    /// control characters, spaces and other characters that URLs must not contain.
    package static func check(_ text: String, form: Form) throws(ValueError) {
        guard text.utf8.count <= ManifestLimits.urlLength else {
            throw ValueError(
                expected: "a URL of at most \(ManifestLimits.urlLength) bytes",
                text: text
            )
        }
        guard !text.isEmpty else { throw ValueError(expected: "a URL", text: text) }
        guard text.unicodeScalars.allSatisfy(\.isAllowedInURL) else {
            throw ValueError(expected: "a URL without spaces and control characters", text: text)
        }
        let url = URLReference(text)
        switch (url.schemeName, form) {
        case ("http", _), ("https", _):
            guard !url.hasUser else {
                throw ValueError(
                    expected: "a URL with a host and without a user",
                    text: text.withoutUser
                )
            }
            _ = try url.checkOrigin()
        case ("file", _):
            guard ["", "localhost"].contains(url.authority), url.path.utf8.first == 0x2F else {
                throw ValueError(expected: "a file URL such as 'file:///path'", text: text)
            }
        case (nil, .absoluteOrRelative):
            guard url.authority == nil, !text.utf8.prefix(while: { $0 != 0x2F }).contains(0x3A)
            else { throw ValueError(expected: "an absolute or relative URL", text: text) }
        case (nil, .absolute):
            throw ValueError(expected: "an absolute http, https or file URL", text: text)
        default:
            throw ValueError(expected: "an http, https or file URL", text: text)
        }
    }
}

// Compares bytes, as other programs do: in Swift, a slash and a combining character after it form one `Character`.
extension String {
    /// The index after the first `://`, or `nil` if there is none.
    package var endOfScheme: Index? {
        var rest = utf8[...]
        while let colon = rest.firstIndex(of: UInt8(ascii: ":")) {
            rest = rest[colon...].dropFirst()
            if rest.starts(with: "//".utf8) { return rest.dropFirst(2).startIndex }
        }
        return nil
    }

    /// The URL with dots in place of the user name and password, which must not appear in messages.
    package var withoutUser: String {
        guard let start = endOfScheme else { return self }
        let authority = utf8[start...].prefix { !$0.endsAuthority }
        guard let at = authority.lastIndex(of: UInt8(ascii: "@")) else { return self }
        return "\(self[..<start])…\(self[at...])"
    }

    /// The URL without its query and fragment.
    package var withoutQuery: Substring {
        Substring(utf8.prefix { $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#") })
    }
}

extension UInt8 {
    /// Indicates whether the byte ends the authority of a URL (RFC 3986, section 3.2).
    package var endsAuthority: Bool {
        self == UInt8(ascii: "/") || self == UInt8(ascii: "?") || self == UInt8(ascii: "#")
    }
}

extension Unicode.Scalar {
    /// Indicates whether a URL may contain the scalar.
    ///
    /// Excludes ASCII characters that RFC 3986 does not allow, and scalars that are unsafe to print. Allows
    /// other scripts, which occur in local paths.
    fileprivate var isAllowedInURL: Bool {
        switch self {
        case "\"", "<", ">", "\\", "^", "`", "{", "|", "}": false
        case "!"..."~": true
        default: !isUnsafeForDisplay && !properties.isWhitespace
        }
    }
}
