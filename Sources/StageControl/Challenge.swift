import FoundationEssentials
package import StageModel

/// Authentication challenge: the parsed value of a `WWW-Authenticate` field (RFC 9110, section 11.6.1).
package struct Challenge: Equatable, Sendable {
    /// Offered authentication schemes, in lower case and in order.
    package let schemes: [String]
    /// Realm of the `Basic` scheme, or else of the first scheme.
    package let realm: String?
    /// URL of the response with the challenge.
    package let url: String

    /// Parses the value of the field.
    package init(_ value: String, url: String) {
        self.url = url
        var schemes: [String] = []
        var realms: [String: String] = [:]
        for part in Self.parts(value) {
            let equals = part.firstIndex(of: "=")
            var words = part[..<(equals ?? part.endIndex)].split(separator: " ")
            // 'Basic realm="x"' starts a challenge; 'charset="UTF-8"' is a further parameter of the current one.
            if equals == nil || words.count > 1, let scheme = words.first {
                schemes.append(scheme.lowercased())
                words.removeFirst()
            }
            guard let equals, let scheme = schemes.last, words.last?.lowercased() == "realm" else {
                continue
            }
            realms[scheme] = Self.unquoted(part[part.index(after: equals)...])
        }
        self.schemes = schemes
        realm = realms[schemes.contains("basic") ? "basic" : schemes.first ?? ""]
    }

    /// Origin of the server; `nil` if the URL has none.
    package var origin: URLOrigin? { URLReference(url).origin }

    /// Returns the value of the `Authorization` field for a name and password; `nil` if the server does not offer
    /// Basic authentication.
    package func authorization(user: String, password: String) -> String? {
        guard schemes.contains("basic") else { return nil }
        return "Basic \(Data("\(user):\(password)".utf8).base64EncodedString())"
    }

    /// Splits a list at its commas, except those within quotes.
    private static func parts(_ value: String) -> [Substring] {
        var isQuoted = false
        var isEscaped = false
        return value.split { character in
            defer { isEscaped = isQuoted && character == "\\" && !isEscaped }
            if character == "\"" && !isEscaped { isQuoted.toggle() }
            return character == "," && !isQuoted
        }
        .map { $0.drop { $0 == " " } }
    }

    private static func unquoted(_ value: Substring) -> String {
        let text = value.drop { $0 == " " }
        guard text.first == "\"" else { return String(text.prefix { $0 != " " }) }
        var result = ""
        var isEscaped = false
        for character in text.dropFirst() {
            if !isEscaped && character == "\"" { break }
            isEscaped = !isEscaped && character == "\\"
            if !isEscaped { result.append(character) }
        }
        return result
    }
}
