import StageModel
import SystemPackage

/// The central directory of a zip archive (PKWARE's APPNOTE 6.3.10), checked against the local headers.
///
/// A zip archive stores each header twice, and implementations differ in which one they use. Both must agree
/// here, entries must not overlap, and no entry may be encrypted, so that all implementations read the same
/// content.
enum ZipDirectory {
    /// Checks the archive, and returns the names of its entries.
    ///
    /// - Throws: ``ArchiveError`` for the first entry whose headers disagree.
    @discardableResult
    static func check(
        _ file: FileDescriptor,
        limits: UnpackLimits
    ) throws(ArchiveError) -> ZipNames {
        let bytes = ZipBytes(file)
        let directory = try ZipEnd.find(in: bytes)
        let (maximum, overflows) = limits.entries.addingReportingOverflow(limits.directoryEntries)
        guard overflows || directory.count <= maximum else {
            throw .tooManyEntries(entry: "", limit: limits.entries)
        }
        // A directory entry has at least 46 bytes, which bounds the allocation.
        guard directory.count <= (directory.end - directory.start) / 46 else {
            throw .damaged(entry: nil, "the central directory is too short")
        }
        var extents: [Range<Int64>] = []
        extents.reserveCapacity(Int(directory.count))
        var headers: [(offset: Int64, position: Int64)] = []
        var position = directory.start
        for _ in 0..<directory.count {
            let entry = try ZipEntry(central: bytes, at: position, limit: directory.end)
            let extent = try entry.extent(in: bytes, limit: directory.start)
            extents.append(extent)
            if try !entry.names(in: bytes, extent: extent).isEmpty {
                headers.append((extent.lowerBound, position))
            }
            position += entry.headerLength
        }
        guard position == directory.end else {
            throw .damaged(entry: nil, "the central directory has more entries than it says")
        }
        extents.sort { $0.lowerBound < $1.lowerBound }
        try checkOverlap(extents)
        return ZipNames(bytes, entries: extents, headers: headers, directory: directory)
    }

    private static func checkOverlap(_ sorted: [Range<Int64>]) throws(ArchiveError) {
        for (left, right) in zip(sorted, sorted.dropFirst())
        where left.upperBound > right.lowerBound {
            throw .damaged(entry: nil, "entries overlap at byte \(right.lowerBound)")
        }
    }
}

/// The location of the central directory.
struct ZipEnd {
    var start: Int64
    var end: Int64
    var count: Int64

    private static let recordLength: Int64 = 22
    /// The distance from the end within which libarchive searches for the record.
    private static let window: Int64 = 16 << 10

    /// Finds the last end record, which must end with the file.
    static func find(in bytes: ZipBytes) throws(ArchiveError) -> ZipEnd {
        let lowest = max(0, bytes.size - window)
        let tail = try bytes.bytes(at: lowest, count: Int(bytes.size - lowest))
        let signature: [UInt8] = [0x50, 0x4B, 0x05, 0x06]
        let offset = stride(from: tail.count - Int(recordLength), through: 0, by: -1).first {
            tail[$0..<$0 + 4].elementsEqual(signature)
        }
        guard let offset else {
            throw .wrongFormat(expected: .zip, "the central directory is missing")
        }
        let position = lowest + Int64(offset)
        let comment = try bytes.number(at: position + 20, count: 2)
        guard position + recordLength + comment == bytes.size else {
            throw .damaged(entry: nil, "extra bytes follow the end of the archive")
        }
        let small = ZipEnd(
            start: try bytes.number(at: position + 16, count: 4),
            end: try bytes.number(at: position + 16, count: 4)
                + bytes.number(at: position + 12, count: 4),
            count: try bytes.number(at: position + 10, count: 2)
        )
        guard try bytes.number(at: position + 4, count: 4) == 0,
            try bytes.number(at: position + 8, count: 2) == small.count
        else { throw .damaged(entry: nil, "the archive has several parts") }
        let large = try findLarge(in: bytes, before: position)
        let found = large?.directory ?? small
        guard found.start >= 0, found.end >= found.start, found.end == large?.start ?? position
        else {
            throw .damaged(entry: nil, "the central directory is not where its record says")
        }
        return found
    }

    /// Finds the zip64 end record, if any; it must agree with the fields that the small record sets.
    private static func findLarge(
        in bytes: ZipBytes,
        before position: Int64
    ) throws(ArchiveError) -> (directory: ZipEnd, start: Int64)? {
        let locator = position - 20
        guard locator >= 0, try bytes.number(at: locator, count: 4) == 0x0706_4B50 else {
            return nil
        }
        let record = try bytes.number(at: locator + 8, count: 8)
        guard record >= 0, record <= locator - 56,
            try bytes.number(at: record, count: 4) == 0x0606_4B50,
            try bytes.number(at: record + 4, count: 8) == locator - record - 12
        else { throw .damaged(entry: nil, "the end record of zip64 is damaged") }
        let count = try bytes.number(at: record + 32, count: 8)
        let size = try bytes.number(at: record + 40, count: 8)
        let start = try bytes.number(at: record + 48, count: 8)
        let (end, overflows) = start.addingReportingOverflow(size)
        let pairs: [(small: Int64, large: Int64, unset: Int64)] = [
            (try bytes.number(at: position + 10, count: 2), count, 0xFFFF),
            (try bytes.number(at: position + 12, count: 4), size, 0xFFFF_FFFF),
            (try bytes.number(at: position + 16, count: 4), start, 0xFFFF_FFFF),
        ]
        guard !overflows, count >= 0, size >= 0, start >= 0,
            pairs.allSatisfy({ $0.small == $0.unset || $0.small == $0.large })
        else {
            throw .damaged(entry: nil, "the end records disagree")
        }
        return (ZipEnd(start: start, end: end, count: count), record)
    }
}
