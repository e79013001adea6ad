import FoundationEssentials
package import StageModel

/// What a server says when it wants to know who asks: the value of a `WWW-Authenticate` field (RFC 9110,
/// section 11.6.1).
public struct Challenge: Equatable, Sendable {
    /// The schemes on offer, in lower case and in order.
    public let schemes: [String]
    /// The realm of the first scheme that can be answered, or of the first.
    public let realm: String?
    /// Where the question comes from.
    public let url: String

    /// Reads a field's value.
    public init(_ value: String, url: String) {
        self.url = url
        var schemes: [String] = []
        var realms: [String: String] = [:]
        for part in Self.parts(value) {
            let equals = part.firstIndex(of: "=")
            var words = part[..<(equals ?? part.endIndex)].split(separator: " ")
            // 'Basic realm="x"' begins a challenge, 'charset="UTF-8"' goes on with one.
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

    /// The server that the question comes from; `nil` where the URL names none.
    package var origin: URLOrigin? { URLReference(url).origin }

    /// The value of the `Authorization` field that answers with a name and password; `nil` if the server
    /// does not take those in the clear.
    public func authorization(user: String, password: String) -> String? {
        guard schemes.contains("basic") else { return nil }
        return "Basic \(Data("\(user):\(password)".utf8).base64EncodedString())"
    }

    /// Cuts a list at the commas that are not within quotes.
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
