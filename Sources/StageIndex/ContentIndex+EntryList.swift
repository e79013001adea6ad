package import StageModel

extension ContentIndex {
    /// The entries of an index in packed form, because an index may have a million of them.
    ///
    /// An entry takes 56 bytes plus its path, a third of its size in an array of ``ContentIndex/Entry``. The
    /// subscript creates an entry with a string for its path; code that needs only the file or the path uses
    /// ``file(at:)`` or ``pathBytes(at:)``.
    package struct EntryList: RandomAccessCollection, Equatable, Sendable {
        /// The concatenated paths.
        private var text: [UInt8] = []
        private var records: [Record] = []
        /// The frames of files that consist of whole frames, file by file.
        private var lists: [Int32] = []
        /// The targets of links.
        private var targets: [LinkTarget] = []

        /// A packed entry; the meaning of its fields depends on its form.
        private struct Record: Equatable {
            var digest = ContentIndex.emptyDigest
            var size: Int64 = 0
            /// The frame of a file, or the index of its first frame in `lists`, or the index of a link's
            /// target.
            var first: Int32 = 0
            /// The offset of a file in its frame, or the number of its frames.
            var second: Int32 = 0
            /// The end of the path in `text`.
            var end: UInt32
            var form = Form.directory
            var isExecutable = false
        }

        /// The form of an entry.
        private enum Form: UInt8 {
            case directory, link, part, frames
        }

        /// The memory for decoding an entry, without its path and its frames, in bytes.
        static var bytesPerEntry: Int {
            // Two lengths of parts of its path, and its kind.
            MemoryLayout<Record>.stride + 2 * MemoryLayout<UInt16>.stride
                + MemoryLayout<UInt8>.stride
        }

        /// Creates a list without entries.
        package init() {}

        /// Creates a list of entries, in their order.
        package init(_ entries: some Sequence<Entry>) {
            for entry in entries { append(entry) }
        }

        /// The position of the first entry.
        package var startIndex: Int { 0 }
        /// The position after the last entry.
        package var endIndex: Int { records.count }

        /// The entry at a position.
        package subscript(position: Int) -> Entry {
            Entry(path: path(at: position), kind: kind(at: position))
        }

        /// Returns the path of an entry.
        package func path(at position: Int) -> ContentPath {
            ContentPath(unchecked: String(decoding: pathBytes(at: position), as: UTF8.self))
        }

        /// Returns the bytes of an entry's path, without creating a string.
        package func pathBytes(at position: Int) -> ArraySlice<UInt8> {
            let start = position == 0 ? 0 : Int(records[position - 1].end)
            return text[start..<Int(records[position].end)]
        }

        /// Returns the kind of an entry, without its path.
        package func kind(at position: Int) -> Kind {
            switch records[position].form {
            case .directory: .directory
            case .link: .link(to: targets[Int(records[position].first)])
            case .part, .frames: .file(file(of: records[position]))
            }
        }

        /// Returns the file at a position, without its path; `nil` if the entry is not a file.
        package func file(at position: Int) -> File? {
            switch records[position].form {
            case .directory, .link: nil
            case .part, .frames: file(of: records[position])
            }
        }

        /// Returns whether the entry at a position is a directory.
        package func isDirectory(at position: Int) -> Bool { records[position].form == .directory }

        private func file(of record: Record) -> File {
            let (first, second) = (Int(record.first), Int(record.second))
            return File(
                isExecutable: record.isExecutable,
                size: record.size,
                digest: record.digest,
                content: record.form == .part
                    ? .part(frame: first, offset: second)
                    : .frames(lists[first..<first + second].map { Int($0) })
            )
        }

        /// Appends an entry.
        package mutating func append(_ entry: Entry) {
            append(path: entry.path.text.utf8)
            let last = records.count - 1
            switch entry.kind {
            case .directory: break
            case .link(let target): setLink(last, to: target)
            case .file(let file):
                setFile(last, isExecutable: file.isExecutable, size: file.size)
                set(file.content, at: last)
                setDigest(file.digest, at: last)
            }
        }
    }
}

extension ContentIndex.EntryList {
    /// Reserves memory for a number of entries whose paths have `pathBytes` bytes in all.
    package mutating func reserveCapacity(_ count: Int, pathBytes: Int) {
        records.reserveCapacity(count)
        text.reserveCapacity(pathBytes)
    }

    /// Appends a directory, which other functions change to a file or a link.
    mutating func append(path: some Collection<UInt8>) {
        text += path
        records.append(Record(end: UInt32(text.count)))
    }

    mutating func setLink(_ position: Int, to target: LinkTarget) {
        records[position].form = .link
        records[position].first = Int32(targets.count)
        targets.append(target)
    }

    /// Changes an entry to a file without frames, with the digest of empty content.
    mutating func setFile(_ position: Int, isExecutable: Bool, size: Int64) {
        records[position].form = .part
        records[position].isExecutable = isExecutable
        records[position].size = size
    }

    mutating func set(_ content: ContentIndex.Content, at position: Int) {
        switch content {
        case .part(let frame, let offset):
            records[position].first = Int32(frame)
            records[position].second = Int32(offset)
        case .frames(let list):
            records[position].form = .frames
            records[position].first = Int32(lists.count)
            records[position].second = Int32(list.count)
            lists += list.lazy.map { Int32($0) }
        }
    }

    mutating func setDigest(_ digest: Digest, at position: Int) {
        records[position].digest = digest
    }

    /// The number of references to frames of all files that consist of whole frames.
    package var referenceCount: Int { lists.count }
    /// The bytes of all paths.
    var pathByteCount: Int { text.count }

    /// Returns the digest of the file at a position.
    func digest(at position: Int) -> Digest { records[position].digest }

    /// Returns the size of the file at a position; 0 for other entries.
    package func size(at position: Int) -> Int64 { records[position].size }

    /// Returns whether the index contains the digest of the file at a position elsewhere: the digest of empty
    /// content, or of the file's only frame.
    func hasDigestOfFrame(at position: Int) -> Bool {
        let record = records[position]
        return record.size == 0 || record.form == .frames && record.second == 1
    }
}

extension ContentIndex.EntryList: ExpressibleByArrayLiteral {
    /// Creates a list of entries, in their order.
    package init(arrayLiteral entries: ContentIndex.Entry...) { self.init(entries) }
}
