import StageIndex

/// Finds the file of an older version that a file of a newer one came from, by its path or its name.
struct Counterparts {
    private let paths: [[UInt8]]
    private var byPath: [[UInt8]: Int] = [:]
    private var byName: [[UInt8]: [Int]] = [:]
    /// By what is left of a name without its digits: a version number may have changed.
    private var byShape: [[UInt8]: [Int]] = [:]

    /// The most files of one name that are compared.
    private static let candidates = 256

    init(in index: ContentIndex) {
        // By their bytes: two names that Unicode takes for one are two for the file system.
        paths = index.entries.indices.map { Array(index.entries.pathBytes(at: $0)) }
        for position in index.entries.indices {
            guard let file = index.entries.file(at: position), file.size > 0 else { continue }
            let name = Self.name(of: paths[position])
            byPath[paths[position]] = position
            byName[name, default: []].append(position)
            byShape[Self.shape(of: name), default: []].append(position)
        }
    }

    /// The entry of the file that is most like the one at `path`: that at the same path; of those with
    /// the same name, that whose path ends with the most of the same bytes; one whose name differs by
    /// digits, if that is the only one.
    subscript(path: ArraySlice<UInt8>) -> Int? {
        let path = Array(path)
        if let same = byPath[path] { return same }
        let name = Self.name(of: path)
        if let named = byName[name]?.prefix(Self.candidates) {
            func agreement(_ position: Int) -> Int {
                zip(paths[position].reversed(), path.reversed()).prefix { $0 == $1 }.count
            }
            // The first of equals.
            return named.reversed().max { agreement($0) < agreement($1) }
        }
        guard let alike = byShape[Self.shape(of: name)], alike.count == 1 else { return nil }
        return alike[0]
    }

    private static func name(of path: [UInt8]) -> [UInt8] {
        Array(path[(path.lastIndex(of: UInt8(ascii: "/")).map { $0 + 1 } ?? 0)...])
    }

    private static func shape(of name: [UInt8]) -> [UInt8] {
        name.filter { !(UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
    }
}
