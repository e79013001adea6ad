package import StageModel

extension Digest {
    /// The value in place of an omitted digest: 32 zero bytes, which no content is known to have as its digest.
    package static let omitted = Digest(bytes: [UInt8](repeating: 0, count: byteCount))
}

extension ContentIndex {
    /// The location of the content of a piece: a whole frame, or a part of one.
    struct Location: Hashable {
        /// The position of the frame in the index.
        var frame: Int
        /// The offset in the frame; `nil` for a whole frame.
        var offset: Int?
        /// The number of bytes.
        var length: Int
    }

    /// Returns the location of the content of a piece of this version.
    func location(of piece: PatchContent.Piece) -> Location {
        if let frame = piece.frame {
            return Location(frame: frame, offset: nil, length: piece.length)
        }
        guard case .part(let frame, let offset)? = entries.file(at: piece.entry)?.content else {
            preconditionFailure("a piece without a frame is a part of one")
        }
        return Location(frame: frame, offset: offset, length: piece.length)
    }

    /// Returns the index without the digests that a client computes from the content of a patch.
    ///
    /// Omits the digest of each piece that the older version lacks, unless several locations have its content: only the digest
    /// tells then that they are equal. Digests of files that consist of several frames stay, and so do those of frames
    /// of which files are parts.
    ///
    /// - Parameter old: The older version.
    /// - Returns: An index with ``StageModel/Digest/omitted`` in place of these digests, and with the same
    ///   `PatchContent`, except for its digests; ``restoreDigests(_:of:)`` gives this index again.
    package func omittingDigests(notIn old: ContentIndex) -> ContentIndex {
        var locations: [Digest: Location] = [:]
        for piece in PatchContent(of: self, notIn: old).pieces {
            locations[piece.digest] = location(of: piece)
        }
        forEachPiece { piece in
            guard let location = locations[piece.digest], location != self.location(of: piece)
            else { return }
            locations[piece.digest] = nil
        }
        var index = self
        for location in locations.values where location.offset == nil {
            index.frames[location.frame].digest = .omitted
        }
        for position in entries.indices {
            guard let file = entries.file(at: position), file.size > 0 else { continue }
            let isOmitted =
                switch file.content {
                case .part: locations[file.digest] != nil
                case .frames(let list):
                    list.count == 1 && index.frames[list[0]].digest == .omitted
                }
            if isOmitted { index.entries.setDigest(.omitted, at: position) }
        }
        return index
    }

    /// Replaces omitted digests.
    ///
    /// - Parameters:
    ///   - digests: The digests of the pieces, in their order.
    ///   - content: The content of the patch, from this index and the older one.
    package mutating func restoreDigests(_ digests: [Digest], of content: PatchContent) {
        var locations: [Location: Digest] = [:]
        for (piece, digest) in zip(content.pieces, digests) where piece.digest == .omitted {
            let location = location(of: piece)
            locations[location] = digest
            if location.offset == nil { frames[location.frame].digest = digest }
        }
        for position in entries.indices {
            guard let file = entries.file(at: position), file.size > 0, file.digest == .omitted
            else { continue }
            switch file.content {
            case .part(let frame, let offset):
                let location = Location(frame: frame, offset: offset, length: Int(file.size))
                if let digest = locations[location] { entries.setDigest(digest, at: position) }
            case .frames(let list):
                if list.count == 1 { entries.setDigest(frames[list[0]].digest, at: position) }
            }
        }
    }
}
