package import StageModel

/// Pieces of one version of an indexed pack: those that a patch contains, or those that it refers to.
///
/// A piece is a frame of a file that has frames of its own, or a whole file that is a part of a frame. They are in
/// the order of the files' paths; of pieces with equal content, only the first counts.
///
/// An index whose digests are omitted has the same pieces: `ContentIndex/omittingDigests(notIn:)`.
package struct PatchContent: Equatable, Sendable {
    /// A piece, in 24 bytes, because a version may have a million of them.
    package struct Piece: Equatable, Sendable {
        /// The offset in the file.
        package let offset: Int64
        private let packedEntry: Int32
        /// -1 for a whole file.
        private let packedFrame: Int32
        private let packedLength: Int32

        init(entry: Int, frame: Int?, offset: Int64, length: Int) {
            self.offset = offset
            packedEntry = Int32(entry)
            packedFrame = Int32(frame ?? -1)
            packedLength = Int32(length)
        }

        /// The position of the file's entry in the index.
        package var entry: Int { Int(packedEntry) }
        /// The position of the frame in the index; `nil` for a whole file.
        package var frame: Int? { packedFrame < 0 ? nil : Int(packedFrame) }
        /// The number of bytes: 1 to ``IndexLimits/frameLength``.
        package var length: Int { Int(packedLength) }
    }

    /// The pieces, in order.
    package private(set) var pieces: [Piece] = []
    /// The digests of the first ``changedCount`` pieces: of all pieces that a patch contains.
    package private(set) var digests: [Digest] = []
    /// For each piece, the total length of the pieces up to its end.
    package private(set) var ends: [Int64] = []
    /// The number of pieces, from the first one, that the other version lacks.
    package private(set) var changedCount = 0

    /// The total size of the pieces in bytes.
    package var size: Int64 { ends.last ?? 0 }
    /// The size of the pieces that the other version lacks.
    package var changedSize: Int64 { changedCount == 0 ? 0 : ends[changedCount - 1] }

    /// Finds the pieces of `version` that `other` lacks: what a patch to `version` contains.
    package init(of version: ContentIndex, notIn other: ContentIndex) {
        self.init(of: version, notIn: other, keepingRest: false)
    }

    /// Finds all pieces of `version`, first those that `other` lacks: what a patch to `other` can refer to.
    package init(of version: ContentIndex, firstNotIn other: ContentIndex) {
        self.init(of: version, notIn: other, keepingRest: true)
    }

    private init(of version: ContentIndex, notIn other: ContentIndex, keepingRest: Bool) {
        let table = PieceTable(of: other)
        var changed: Set<Digest> = []
        // Pieces whose digests are omitted: the other version has none of them.
        var locations: Set<ContentIndex.Location> = []
        version.forEachPiece { piece, digest in
            let isFirst =
                digest == .omitted
                ? locations.insert(version.location(of: piece)).inserted
                : table.number(of: digest) == nil && changed.insert(digest).inserted
            guard isFirst else { return }
            digests.append(digest)
            append(piece)
        }
        changedCount = pieces.count
        guard keepingRest else { return }
        // A second pass takes less memory than a list of these pieces. Reserved memory that is not written takes none.
        let most = version.entries.count + version.entries.referenceCount
        pieces.reserveCapacity(most)
        ends.reserveCapacity(most)
        var isFound = [Bool](repeating: false, count: table.count)
        version.forEachPiece { piece, digest in
            guard digest != .omitted, let number = table.number(of: digest), !isFound[number] else {
                return
            }
            isFound[number] = true
            append(piece)
        }
    }

    private mutating func append(_ piece: Piece) {
        ends.append(size + Int64(piece.length))
        pieces.append(piece)
    }

    /// Returns the offset of the first byte of a piece among all bytes of the pieces.
    package func start(of position: Int) -> Int64 {
        position == 0 ? 0 : ends[position - 1]
    }

    /// Returns the position of the piece that contains the byte at an offset; the number of pieces for an offset after
    /// the last piece.
    package func position(at offset: Int64) -> Int {
        ends.partitioningIndex { $0 > offset }
    }

    /// Calls `body` with the pieces that lie in a range of offsets, and the part of each that does.
    package func forEachPiece<Failure: Error>(
        in range: Range<Int64>,
        _ body: (_ piece: Piece, _ part: Range<Int>) throws(Failure) -> Void
    ) throws(Failure) {
        var position = position(at: range.lowerBound)
        var offset = range.lowerBound
        while offset < range.upperBound, position < pieces.count {
            let start = start(of: position)
            let end = min(ends[position], range.upperBound)
            try body(pieces[position], Int(offset - start)..<Int(end - start))
            offset = end
            position += 1
        }
    }
}

extension ContentIndex {
    /// Calls `body` with each piece of each file, in the order of paths.
    func forEachPiece(_ body: (_ piece: PatchContent.Piece, _ digest: Digest) -> Void) {
        for position in entries.indices {
            guard let file = entries.file(at: position), file.size > 0 else { continue }
            switch file.content {
            case .part:
                let piece = PatchContent.Piece(
                    entry: position,
                    frame: nil,
                    offset: 0,
                    length: Int(file.size)
                )
                body(piece, file.digest)
            case .frames(let list):
                var offset: Int64 = 0
                for number in list {
                    let frame = frames[number]
                    let piece = PatchContent.Piece(
                        entry: position,
                        frame: number,
                        offset: offset,
                        length: frame.length
                    )
                    body(piece, frame.digest)
                    offset += Int64(frame.length)
                }
            }
        }
    }
}
