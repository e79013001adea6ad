import StageIndex

/// Finds the file of an older version that corresponds to a file of a newer one, by its path or name.
struct Counterparts {
    private let paths: [[UInt8]]
    private var byPath: [[UInt8]: Int] = [:]
    private var byName: [[UInt8]: [Int]] = [:]
    /// Files by their names without digits: a version number in the name may have changed.
    private var byShape: [[UInt8]: [Int]] = [:]

    /// The maximum number of files of the same name that are compared.
    private static let candidates = 256

    init(in index: ContentIndex) {
        // Compares bytes: names that are canonically equivalent in Unicode are different files.
        paths = index.entries.indices.map { Array(index.entries.pathBytes(at: $0)) }
        for position in index.entries.indices {
            guard let file = index.entries.file(at: position), file.size > 0 else { continue }
            let name = Self.name(of: paths[position])
            byPath[paths[position]] = position
            byName[name, default: []].append(position)
            byShape[Self.shape(of: name), default: []].append(position)
        }
    }

    /// Returns the entry of the most similar file: the one at the same path; else the one with the same name
    /// whose path has the longest common suffix; else the only one whose name differs in digits alone.
    subscript(path: ArraySlice<UInt8>) -> Int? {
        let path = Array(path)
        if let same = byPath[path] { return same }
        let name = Self.name(of: path)
        if let named = byName[name]?.prefix(Self.candidates) {
            func agreement(_ position: Int) -> Int {
                zip(paths[position].reversed(), path.reversed()).prefix { $0 == $1 }.count
            }
            // The first of equally similar files.
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
