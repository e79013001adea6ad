package import StageModel

/// The pieces of one version of an indexed pack that another version lacks: what a patch between the two
/// contains, or what it refers to.
///
/// A piece is a frame of a file that has frames of its own, or a whole file that is a part of a frame. They are in
/// the order of the files' paths; of pieces with equal content, only the first counts.
package struct PatchContent: Equatable, Sendable {
    /// A piece.
    package struct Piece: Equatable, Sendable {
        /// The position of the file's entry in the index.
        package var entry: Int
        /// The position of the frame in the index; `nil` for a whole file.
        package var frame: Int?
        /// The offset in the file.
        package var offset: Int64
        /// The number of bytes: 1 to ``IndexLimits/frameLength``.
        package var length: Int
        /// The digest of the content.
        package var digest: Digest
    }

    /// The pieces, in order.
    package private(set) var pieces: [Piece] = []
    /// Their total size in bytes.
    package private(set) var size: Int64 = 0

    /// Finds the pieces of `version` that `other` lacks.
    package init(of version: ContentIndex, notIn other: ContentIndex) {
        var known: Set<Digest> = []
        other.forEachPiece { known.insert($0.digest) }
        version.forEachPiece { piece in
            guard known.insert(piece.digest).inserted else { return }
            pieces.append(piece)
            size += Int64(piece.length)
        }
    }
}

extension ContentIndex {
    /// Calls `body` with each piece of each file, in the order of paths.
    fileprivate func forEachPiece(_ body: (PatchContent.Piece) -> Void) {
        for position in entries.indices {
            guard let file = entries.file(at: position), file.size > 0 else { continue }
            switch file.content {
            case .part:
                body(
                    PatchContent.Piece(
                        entry: position,
                        frame: nil,
                        offset: 0,
                        length: Int(file.size),
                        digest: file.digest
                    )
                )
            case .frames(let list):
                var offset: Int64 = 0
                for number in list {
                    let frame = frames[number]
                    body(
                        PatchContent.Piece(
                            entry: position,
                            frame: number,
                            offset: offset,
                            length: frame.length,
                            digest: frame.digest
                        )
                    )
                    offset += Int64(frame.length)
                }
            }
        }
    }
}
