/// The head of a request, as the bytes encode it.
package struct RequestHead: Equatable, Sendable {
    /// `GET`, `HEAD` and so on.
    package var method: String
    /// The path with its query, as it was sent.
    package var target: String
    /// The header fields in order, names in lower case.
    package var fields: [String: String]

    /// Parses a head; returns `nil` if the text is not one.
    init?(_ text: String) {
        let lines = text.split(separator: "\r\n")
        let words = lines.first?.split(separator: " ") ?? []
        guard words.count == 3 else { return nil }
        method = String(words[0])
        target = String(words[1])
        fields = [:]
        for line in lines.dropFirst() {
            guard let colon = line.firstIndex(of: ":") else { continue }
            let value = line[line.index(after: colon)...].drop { $0 == " " }
            fields[line[..<colon].lowercased()] = String(value)
        }
    }

    /// The value of a field, by its name in any case.
    package subscript(name: String) -> String? { fields[name.lowercased()] }

    /// The first byte that a `Range` of the form `bytes=N-` asks for.
    package var rangeStart: Int? {
        guard let range = self["range"], range.hasPrefix("bytes=") else { return nil }
        return Int(range.dropFirst(6).prefix { $0.isNumber })
    }

    /// The last byte that a `Range` of the form `bytes=N-M` asks for.
    package var rangeEnd: Int? {
        guard let range = self["range"], let dash = range.firstIndex(of: "-") else { return nil }
        return Int(range[range.index(after: dash)...])
    }
}
