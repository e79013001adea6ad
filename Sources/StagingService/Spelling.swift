/// Finds the name that a mistyped one may mean.
package enum Spelling {
    /// Returns the known name that differs least from `text`; `nil` if each differs by more than a sixth of its
    /// letters.
    ///
    /// Names differ by letters that are added, left out, replaced, or swapped with their neighbour (the restricted
    /// distance of Damerau and Levenshtein). Takes time in proportion to the product of the lengths.
    package static func nearest(to text: String, among names: [String]) -> String? {
        let letters = Array(text.lowercased())
        let distances = names.map { ($0, distance(letters, Array($0.lowercased()))) }
        guard let (name, distance) = distances.min(by: { $0.1 < $1.1 }),
            distance <= max(1, name.count / 6)
        else { return nil }
        return name
    }

    private static func distance(_ left: [Character], _ right: [Character]) -> Int {
        var before: [Int] = []
        var last = Array(0...right.count)
        for i in left.indices {
            var row = [i + 1]
            for j in right.indices {
                let replaced = last[j] + (left[i] == right[j] ? 0 : 1)
                var least = min(replaced, last[j + 1] + 1, row[j] + 1)
                if i > 0, j > 0, left[i] == right[j - 1], left[i - 1] == right[j] {
                    least = min(least, before[j - 1] + 1)
                }
                row.append(least)
            }
            (before, last) = (last, row)
        }
        return last[right.count]
    }
}
