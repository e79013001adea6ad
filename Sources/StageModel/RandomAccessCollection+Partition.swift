extension RandomAccessCollection {
    /// Returns the position of the first element that satisfies `belongsInSecondPartition`, by binary search; the end
    /// if none does.
    ///
    /// The elements must be partitioned: after one that satisfies it, all do. Swift Algorithms has a function of this
    /// name.
    ///
    /// - Complexity: O(log *n*).
    @inlinable
    package func partitioningIndex(where belongsInSecondPartition: (Element) -> Bool) -> Index {
        var (low, left) = (startIndex, count)
        while left > 0 {
            let half = left / 2
            let middle = index(low, offsetBy: half)
            if belongsInSecondPartition(self[middle]) {
                left = half
            } else {
                low = index(after: middle)
                left -= half + 1
            }
        }
        return low
    }
}
