extension String {
    /// Returns the most similar of some names, for a question such as "did you mean 'prefetch'?".
    ///
    /// The distance is the number of letters to insert, delete, replace or swap with their neighbour (optimal string
    /// alignment). A third of the letters may differ, at most three.
    ///
    /// - Parameter names: The names that exist.
    /// - Returns: The first of the most similar names; `nil` if none is similar enough, or one is the same.
    package func mostSimilar(in names: some Sequence<String>) -> String? {
        let own = Array(lowercased().utf8.prefix(Self.longestName))
        let limit = Swift.min(max(own.count / 3, 1), 3)
        var best: (name: String, distance: Int)?
        for name in names {
            if name == self { return nil }
            let other = Array(name.lowercased().utf8.prefix(Self.longestName))
            guard abs(other.count - own.count) <= limit else { continue }
            let distance = Self.distance(from: own, to: other)
            guard distance <= limit, distance < best?.distance ?? .max else { continue }
            best = (name, distance)
        }
        return best?.name
    }

    /// The maximum number of letters that are compared.
    private static let longestName = 128

    private static func distance(from left: [UInt8], to right: [UInt8]) -> Int {
        // Three rows of the table: the one before the previous one is for swapped letters.
        var rows = (
            [Int](), Array(0...right.count), [Int](repeating: 0, count: right.count + 1)
        )
        for (i, letter) in left.enumerated() {
            rows.2[0] = i + 1
            for (j, other) in right.enumerated() {
                var cost = rows.1[j] + (letter == other ? 0 : 1)
                cost = Swift.min(cost, rows.1[j + 1] + 1, rows.2[j] + 1)
                if i > 0, j > 0, letter == right[j - 1], left[i - 1] == other {
                    cost = Swift.min(cost, rows.0[j - 1] + 1)
                }
                rows.2[j + 1] = cost
            }
            (rows.0, rows.1, rows.2) = (rows.1, rows.2, rows.1)
        }
        return rows.1[right.count]
    }
}
