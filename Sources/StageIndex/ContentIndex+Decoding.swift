import StageModel

extension ContentIndex {
    /// Decodes an untrusted index that ``encoded()`` wrote.
    ///
    /// Checks each number before it is used, and names and links by the rules for archives.
    ///
    /// - Throws: ``IndexError`` for bytes that are not an index of this format version, and for an index that
    ///   exceeds `bounds`, before memory for it is allocated.
    package init(
        decoding bytes: [UInt8],
        within bounds: IndexBounds = .largest
    ) throws(IndexError) {
        var directories = 0
        try self.init(decoding: bytes, within: bounds, directories: &directories)
    }

    /// Decodes an untrusted index that ``encoded()`` wrote, and stores its number of directories.
    ///
    /// - Parameters:
    ///   - bytes: The encoded index.
    ///   - bounds: The limits of the index.
    ///   - directories: Receives ``directoryCount``, which would read all paths once more.
    /// - Throws: ``IndexError``, as for the initializer without `directories`.
    package init(
        decoding bytes: [UInt8],
        within bounds: IndexBounds,
        directories: inout Int
    ) throws(IndexError) {
        guard bytes.starts(with: Self.magic.dropLast()) else {
            throw IndexError(offset: 0, reason: "not an index")
        }
        let version = bytes.count < Self.magic.count ? 0 : bytes[Self.magic.count - 1]
        guard version == Self.magic.last else {
            throw IndexError(
                offset: Self.magic.count - 1,
                reason: "the index has version \(version) of the format, and this program reads 2"
            )
        }
        var reader = ByteReader(bytes)
        _ = try reader.slice("the magic number", count: Self.magic.count)
        // The smallest encoding of each item bounds the number of items.
        let counts = (
            bundles: try reader.number("the number of bundles", in: 0...reader.left / 33),
            frames: try reader.number("the number of frames", in: 0...reader.left / 36),
            entries: try reader.number("the number of entries", in: 0...reader.left / 3)
        )
        guard counts.entries <= bounds.entries else {
            throw reader.fault(
                "more than \(bounds.entries.quantity(of: "entry", plural: "entries"))"
            )
        }
        guard counts.frames <= bounds.frames else {
            throw reader.fault("more than \(bounds.frames.quantity(of: "frame"))")
        }
        guard counts.bundles <= counts.frames else {
            throw reader.fault("more bundles than frames")
        }
        let memory = IndexMemory(of: counts, within: bounds)
        try memory.check(at: reader.offset)
        bundles = []
        bundles.reserveCapacity(counts.bundles)
        for _ in 0..<counts.bundles {
            let digest = try reader.digest("the digest of a bundle")
            let size = try reader.number(
                "the size of a bundle",
                in: 1...UInt64(IndexLimits.bundleSize)
            )
            bundles.append(Bundle(digest: digest, size: Int64(size)))
        }
        frames = try Self.frames(counts.frames, in: bundles, from: &reader)
        entries = try Self.paths(counts.entries, within: memory, from: &reader)
        try readKinds(within: bounds, from: &reader)
        try memory.check(
            pathBytes: entries.pathByteCount,
            references: entries.referenceCount,
            at: reader.offset
        )
        try reader.checkEnd()
        directories = try checkTree(within: bounds)
    }

    private static func frames(
        _ count: Int,
        in bundles: [Bundle],
        from reader: inout ByteReader
    ) throws(IndexError) -> [Frame] {
        // Filled column by column, since arrays of the columns would take almost as much memory as the frames.
        var frames: [Frame] = []
        frames.reserveCapacity(count)
        for _ in 0..<count {
            frames.append(
                Frame(
                    digest: emptyDigest,
                    length: try reader.number(
                        "the length of a frame",
                        in: 1...IndexLimits.frameLength
                    ),
                    compressed: nil,
                    bundle: 0,
                    offset: 0
                )
            )
        }
        for index in frames.indices {
            let most = frames[index].length
            let length = try reader.number("the stored length of a frame", in: 0...most)
            guard length > 0 else { continue }
            frames[index].compressed = Compressed(digest: emptyDigest, length: length)
        }
        var expected = ExpectedPosition()
        for index in frames.indices {
            let step = try reader.difference("the bundle of a frame")
            let (bundle, isTooFar) = Int64(expected.container).addingReportingOverflow(step)
            guard !isTooFar, bundles.indices.contains(Int(clamping: bundle)) else {
                throw reader.fault("a frame refers to a missing bundle")
            }
            expected.enter(Int(bundle))
            let gap = try reader.difference("the offset of a frame")
            let (offset, isOff) = expected.offset.addingReportingOverflow(gap)
            let length = Int64(frames[index].storedLength)
            guard !isOff, offset >= 0, offset <= bundles[Int(bundle)].size - length else {
                throw reader.fault("a frame lies outside of its bundle")
            }
            expected.offset = offset + length
            frames[index].bundle = Int(bundle)
            frames[index].offset = offset
        }
        for index in frames.indices {
            frames[index].digest = try reader.digest("the digest of a frame")
        }
        for index in frames.indices where frames[index].compressed != nil {
            frames[index].compressed?.digest = try reader.digest("the stored digest of a frame")
        }
        return frames
    }

    /// Decodes the paths of `count` entries, which are created as directories.
    private static func paths(
        _ count: Int,
        within memory: IndexMemory,
        from reader: inout ByteReader
    ) throws(IndexError) -> EntryList {
        let most = ContentPath.maximumLength
        // Besides the entries, these take the most memory.
        let shared = try list(count) { () throws(IndexError) in
            UInt16(try reader.number("the shared length of a path", in: 0...most))
        }
        let rests = try list(count) { () throws(IndexError) in
            UInt16(try reader.number("the length of a path", in: 0...most))
        }
        let length = zip(shared, rests).reduce(0) { $0 + Int($1.0) + Int($1.1) }
        // Few encoded bytes can expand to many where paths share long prefixes.
        guard length <= IndexLimits.pathByteCount else {
            throw reader.fault("the paths have more than \(IndexLimits.pathByteCount) bytes")
        }
        try memory.check(pathBytes: length, at: reader.offset)
        var entries = EntryList()
        entries.reserveCapacity(count, pathBytes: length)
        var (previous, path): ([UInt8], [UInt8]) = ([], [])
        for index in 0..<count {
            let start = reader.offset
            guard shared[index] <= previous.count else {
                throw reader.fault("a path shares more than the path before it has")
            }
            path.removeAll(keepingCapacity: true)
            path += previous[..<Int(shared[index])]
            path += try reader.slice("a path", count: Int(rests[index]))
            guard index == 0 || previous.lexicographicallyPrecedes(path) else {
                throw IndexError(offset: start, reason: "the paths are not in order")
            }
            guard let text = String(validating: path, as: UTF8.self) else {
                throw IndexError(offset: start, reason: "a path is not UTF-8")
            }
            do throws(ValueError) {
                _ = try ContentPath(text)
            } catch {
                throw IndexError(offset: start, reason: "a path: \(error)")
            }
            entries.append(path: path)
            swap(&previous, &path)
        }
        return entries
    }

    /// Decodes the kinds of the entries, whose paths are decoded already.
    private mutating func readKinds(
        within bounds: IndexBounds,
        from reader: inout ByteReader
    ) throws(IndexError) {
        let kinds = try Self.list(entries.count) { () throws(IndexError) in
            UInt8(try reader.number("the kind of an entry", in: 0...3))
        }
        guard kinds.count(where: { $0 != 2 }) <= bounds.fileCount else {
            throw reader.fault("more than \(bounds.fileCount.quantity(of: "file")) and links")
        }
        try readFiles(kinds, within: bounds, from: &reader)
        for position in kinds.indices where kinds[position] == 3 {
            let path = entries.path(at: position)
            let count = try reader.number("a target's length", in: 0...LinkTarget.maximumLength)
            let bytes = try reader.slice("the target of a link", count: count)
            guard let text = String(validating: bytes, as: UTF8.self) else {
                throw reader.fault("the target of a link is not UTF-8")
            }
            do throws(ValueError) {
                entries.setLink(position, to: try LinkTarget(text, of: path))
            } catch {
                throw reader.fault("the link '\(path)': \(error)")
            }
        }
    }

    private mutating func readFiles(
        _ kinds: [UInt8],
        within bounds: IndexBounds,
        from reader: inout ByteReader
    ) throws(IndexError) {
        let most = UInt64(clamping: bounds.installedSize.rawValue)
        var total: UInt64 = 0
        for (position, kind) in kinds.enumerated() where kind < 2 {
            let size = try reader.number("the size of a file", in: 0...most)
            total += size
            guard total <= most else {
                throw reader.fault("the files have more than \(most.quantity(of: "byte"))")
            }
            entries.setFile(position, isExecutable: kind == 1, size: Int64(size))
        }
        var expected = ExpectedPosition()
        for (position, kind) in kinds.enumerated() where kind < 2 {
            let size = entries.size(at: position)
            let room = IndexLimits.referenceCount(ofFrames: frames.count) - entries.referenceCount
            let content = try Self.content(
                size,
                of: frames,
                room: room,
                expected: &expected,
                from: &reader
            )
            entries.set(content, at: position)
            if size > 0, case .frames(let list) = content, list.count == 1 {
                entries.setDigest(frames[list[0]].digest, at: position)
            }
        }
        for (position, kind) in kinds.enumerated()
        where kind < 2 && !entries.hasDigestOfFrame(at: position) {
            entries.setDigest(try reader.digest("the digest of a file"), at: position)
        }
    }

    /// Decodes the content of a file, which may refer to at most `room` whole frames.
    private static func content(
        _ size: Int64,
        of frames: [Frame],
        room: Int,
        expected: inout ExpectedPosition,
        from reader: inout ByteReader
    ) throws(IndexError) -> Content {
        guard size > 0 else { return .part(frame: 0, offset: 0) }
        func frame(_ step: Int64, from base: Int) throws(IndexError) -> Int {
            let (sum, isTooFar) = Int64(base).addingReportingOverflow(step)
            guard !isTooFar, frames.indices.contains(Int(clamping: sum)) else {
                throw reader.fault("a file refers to a missing frame")
            }
            return Int(sum)
        }
        let count = try reader.number("the number of frames of a file", in: 0...reader.left)
        guard count <= IndexLimits.frameCount(ofSize: size) else {
            throw reader.fault(
                "a file of \(size.quantity(of: "byte")) is made of \(count.quantity(of: "frame"))"
            )
        }
        guard count <= room else {
            let most = IndexLimits.referenceCount(ofFrames: frames.count)
            throw reader.fault(
                "the files have more than \(most.quantity(of: "reference")) to frames"
            )
        }
        if count == 0 {
            let step = try reader.difference("the frame of a file")
            expected.enter(try frame(step, from: expected.container))
            let gap = try reader.difference("an offset")
            let (offset, isOff) = expected.offset.addingReportingOverflow(gap)
            let length = Int64(frames[expected.container].length)
            guard !isOff, offset >= 0, offset <= length, size <= length - offset else {
                throw reader.fault("a file reaches beyond its frame")
            }
            expected.offset = offset + size
            return .part(frame: expected.container, offset: Int(offset))
        }
        var list: [Int] = []
        list.reserveCapacity(count)
        var length: Int64 = 0
        for _ in 0..<count {
            let step = try reader.difference("the frame of a file")
            let position = try frame(step, from: expected.container + 1)
            expected = ExpectedPosition(container: position)
            list.append(position)
            length += Int64(frames[position].length)
        }
        guard length == size else {
            throw reader.fault(
                "a file of \(size.quantity(of: "byte")) is made of frames of \(length)"
            )
        }
        return .frames(list)
    }

    /// Checks rules across entries: no entry is below another listed entry, links stay inside the pack, and the
    /// number of directories is within bounds; returns that number.
    private func checkTree(within bounds: IndexBounds) throws(IndexError) -> Int {
        var links = ContentLinks()
        var last: ArraySlice<UInt8> = []
        var directories = 0
        for position in entries.indices {
            let bytes = entries.pathBytes(at: position)
            directories += newDirectories(at: position)
            guard directories <= bounds.directories else {
                throw IndexError(
                    offset: 0,
                    reason:
                        "more than \(bounds.directories.quantity(of: "directory", plural: "directories"))"
                )
            }
            if case .link(let target) = entries.kind(at: position) {
                links.add(entries.path(at: position), to: target)
            }
            var above = Self.parent(of: bytes)
            // An entry beside the previous one has the same parent directories.
            if above == last { continue }
            last = above
            while !above.isEmpty {
                guard self.position(of: above) == nil else {
                    let path = entries.path(at: position)
                    throw IndexError(
                        offset: 0,
                        reason: "'\(path)' is below a file, a link or an empty directory"
                    )
                }
                above = Self.parent(of: above)
            }
        }
        if let (path, fault) = links.firstFault() {
            throw IndexError(offset: 0, reason: "the link '\(path)': \(fault)")
        }
        return directories
    }

    /// The number of directories, including implied parents.
    package var directoryCount: Int { entries.indices.reduce(0) { $0 + newDirectories(at: $1) } }

    /// Counts the directories of an entry, itself or above it, that entries before it do not have.
    private func newDirectories(at position: Int) -> Int {
        let previous: ArraySlice<UInt8> = position == 0 ? [] : entries.pathBytes(at: position - 1)
        let count = Self.newDirectories(above: entries.pathBytes(at: position), after: previous)
        return entries.isDirectory(at: position) ? count + 1 : count
    }

    /// Returns the parent directory of a path, empty for the root.
    private static func parent(of path: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        path.lastIndex(of: UInt8(ascii: "/")).map { path[..<$0] } ?? []
    }

    /// Counts the parent directories of a path that are not parents of the path before it: in byte order, the
    /// paths below a directory are consecutive.
    private static func newDirectories(
        above path: ArraySlice<UInt8>,
        after previous: ArraySlice<UInt8>
    ) -> Int {
        let slash = UInt8(ascii: "/")
        var count = 0
        var isShared = true
        var other = previous.makeIterator()
        for byte in path {
            if isShared, other.next() != byte { isShared = false }
            if byte == slash, !isShared { count += 1 }
        }
        return count
    }

    private static func list<Value>(
        _ count: Int,
        next: () throws(IndexError) -> Value
    ) throws(IndexError) -> [Value] {
        var values: [Value] = []
        values.reserveCapacity(count)
        for _ in 0..<count { values.append(try next()) }
        return values
    }
}
