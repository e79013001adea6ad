import StageModel

/// Names of a zip archive's entries as the archive states them, in the order in which libarchive returns the
/// entries: that of their local headers.
///
/// Holds positions only of entries with names outside ASCII or a Unicode path field, and reads their headers again.
struct ZipNames {
    private struct Header {
        /// The number of the entry, counted from 0.
        var number: Int
        /// The position of its header in the central directory.
        var position: Int64
    }

    private let bytes: ZipBytes
    private let directory: ZipEnd
    private var headers: [Header] = []
    private var nextHeader = 0
    private var nextNumber = 0

    /// Creates the names from the extents of all entries in ascending order, and from the local offset and the
    /// position in the central directory of those whose names are read again.
    init(
        _ bytes: ZipBytes,
        entries: [Range<Int64>],
        headers: [(offset: Int64, position: Int64)],
        directory: ZipEnd
    ) {
        self.bytes = bytes
        self.directory = directory
        var rest = headers.sorted { $0.offset < $1.offset }[...]
        for (number, extent) in entries.enumerated() {
            guard let first = rest.first else { break }
            guard first.offset == extent.lowerBound else { continue }
            self.headers.append(Header(number: number, position: first.position))
            rest = rest.dropFirst()
        }
    }

    /// Returns the names of the next entry.
    mutating func next() throws(ArchiveError) -> StatedNames {
        let number = nextNumber
        nextNumber += 1
        guard nextHeader < headers.count, headers[nextHeader].number == number else {
            return StatedNames()
        }
        let position = headers[nextHeader].position
        nextHeader += 1
        // Checks the headers again: the file may have changed.
        let entry = try ZipEntry(central: bytes, at: position, limit: directory.end)
        let extent = try entry.extent(in: bytes, limit: directory.start)
        return try entry.names(in: bytes, extent: extent)
    }
}
