import StageDigest
import StageIndex
import StageModel

/// Assigns addresses to all bytes of a version's files: consecutive, with each distinct content once.
struct ContentAddresses: Sendable {
    /// A part of a frame that a file contains.
    struct Extent: Sendable {
        /// The frame.
        var frame: Int
        /// The offset of the part in the frame.
        var offset: Int
        /// The length of the part in bytes.
        var length: Int
        /// The address of its first byte.
        var address: Int64
    }

    /// The parts of frames that files consist of, by frame and offset; of a frame that is used repeatedly,
    /// only the first use.
    private(set) var extents: [Extent] = []
    /// The entries with distinct content, and the addresses of their first bytes.
    private var entries: [Int] = []
    private var starts: [Int64] = []
    /// The address of each file, by entry; -1 for empty files and other entries.
    private var fileStarts: [Int64]
    /// The address after the last one.
    private(set) var end: Int64 = 0

    /// Assigns addresses to the files of an index.
    init(of index: ContentIndex) {
        fileStarts = Array(repeating: -1, count: index.entries.count)
        var known: [Digest: Int64] = [:]
        var used = [Bool](repeating: false, count: index.frames.count)
        for entry in index.entries.indices {
            guard let file = index.entries.file(at: entry), file.size > 0 else { continue }
            if let start = known[file.digest] {
                fileStarts[entry] = start
                continue
            }
            known[file.digest] = end
            fileStarts[entry] = end
            entries.append(entry)
            starts.append(end)
            switch file.content {
            case .part(let frame, let offset):
                extents.append(
                    Extent(frame: frame, offset: offset, length: Int(file.size), address: end)
                )
            case .frames(let list):
                var address = end
                for frame in list {
                    let length = index.frames[frame].length
                    if !used[frame] {
                        used[frame] = true
                        extents.append(
                            Extent(frame: frame, offset: 0, length: length, address: address)
                        )
                    }
                    address += Int64(length)
                }
            }
            end += file.size
        }
        extents.sort { ($0.frame, $0.offset, $0.address) < ($1.frame, $1.offset, $1.address) }
    }

    /// Returns the addresses of the file at `entry`; `nil` for empty files and other entries.
    func range(ofEntry entry: Int) -> Range<Int64>? {
        fileStarts[entry] < 0 ? nil : file(at: fileStarts[entry])
    }

    /// Returns the addresses of the file that contains the byte at `address`.
    func file(at address: Int64) -> Range<Int64> {
        let position = position(of: address)
        return starts[position]..<(position + 1 < starts.count ? starts[position + 1] : end)
    }

    /// Returns the parts of files at ranges of addresses.
    func segments(of ranges: [Range<Int64>]) -> [DeltaSet.Segment] {
        var segments: [DeltaSet.Segment] = []
        for range in ranges {
            var address = range.lowerBound
            while address < range.upperBound {
                let position = position(of: address)
                let next = min(file(at: address).upperBound, range.upperBound)
                segments.append(
                    DeltaSet.Segment(
                        entry: entries[position],
                        offset: address - starts[position],
                        length: Int(next - address)
                    )
                )
                address = next
            }
        }
        return segments
    }

    /// Returns the position of the last file that starts at or before an address.
    private func position(of address: Int64) -> Int {
        max(0, starts.partitioningIndex { $0 > address } - 1)
    }
}

/// A set of addresses, stored as sorted ranges that do not touch.
struct AddressSet: Sendable {
    private(set) var ranges: [Range<Int64>] = []
    /// The number of addresses.
    private(set) var count: Int64 = 0

    /// Adds the addresses of a range.
    mutating func insert(_ range: Range<Int64>) {
        guard !range.isEmpty else { return }
        let first = ranges.partitioningIndex { $0.upperBound >= range.lowerBound }
        var (start, end, last) = (range.lowerBound, range.upperBound, first)
        while last < ranges.count, ranges[last].lowerBound <= range.upperBound {
            start = min(start, ranges[last].lowerBound)
            end = max(end, ranges[last].upperBound)
            count -= Int64(ranges[last].count)
            last += 1
        }
        count += end - start
        ranges.replaceSubrange(first..<last, with: [start..<end])
    }

    /// Adds the addresses of another set.
    mutating func formUnion(_ other: AddressSet) {
        for range in other.ranges { insert(range) }
    }

    /// Returns whether the set contains an address.
    func contains(_ address: Int64) -> Bool {
        let index = ranges.partitioningIndex { $0.upperBound > address }
        return index < ranges.count && ranges[index].contains(address)
    }
}
