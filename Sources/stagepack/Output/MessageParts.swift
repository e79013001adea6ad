import StageModel

extension [String] {
    /// The first `limit` names and the number of the others, such as "a, b and 3 other packs".
    func named(upTo limit: Int, of noun: String) -> String {
        let rest = count - limit
        return prefix(limit).joined(separator: ", ")
            + (rest > 0 ? " and \(rest.quantity(of: "other \(noun)"))" : "")
    }
}

extension String {
    /// The message without what differs between the objects of a server: the paths of their URLs, and times.
    var withoutPathsAndTimes: String {
        let urlPattern = #/(?<origin>[a-z]+://[^/'\s]+)/[^'\s]*/#
        return replacing(urlPattern) { String($0.output.origin) }.replacing(#/\d+ ms/#, with: "")
    }
}
