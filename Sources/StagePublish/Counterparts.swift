import StageIndex
import StageModel

/// Finds the file of an older version that a file of a newer one came from, by its path or its name.
struct Counterparts {
    private let paths: [[UInt8]]
    private var byPath: [[UInt8]: Int] = [:]
    private var byName: [[UInt8]: [Int]] = [:]
    /// By what is left of a name without its digits: a version number may have changed.
    private var byShape: [[UInt8]: [Int]] = [:]

    /// How many files of one name are compared at most.
    private static let candidates = 256

    init(in index: ContentIndex) {
        // By their bytes: two names that Unicode takes for one are two for the file system.
        paths = index.entries.map { Array($0.path.text.utf8) }
        for (position, entry) in index.entries.enumerated() {
            guard case .file(let file) = entry.kind, file.size > 0 else { continue }
            let name = Self.name(of: paths[position])
            byPath[paths[position]] = position
            byName[name, default: []].append(position)
            byShape[Self.shape(of: name), default: []].append(position)
        }
    }

    /// The entry of the file that is most like the one at `path`: that at the same path; of those with
    /// the same name, that whose path ends with the most of the same bytes; one whose name differs by
    /// digits, if that is the only one.
    subscript(path: ContentPath) -> Int? {
        let path = Array(path.text.utf8)
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
