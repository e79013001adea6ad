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
    ///   `PatchContent`, except for its digests; ``encoded(restoring:of:)`` encodes this index again.
    package func omittingDigests(notIn old: ContentIndex) -> ContentIndex {
        var locations: [Digest: Location] = [:]
        let content = PatchContent(of: self, notIn: old)
        for (piece, digest) in zip(content.pieces, content.digests) {
            locations[digest] = location(of: piece)
        }
        forEachPiece { piece, digest in
            guard let location = locations[digest], location != self.location(of: piece) else {
                return
            }
            locations[digest] = nil
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

    /// Returns the encoded index with digests in place of omitted ones; the index itself is not copied.
    ///
    /// - Parameters:
    ///   - digests: The digests of the pieces, in their order.
    ///   - content: The content of the patch, from this index and the older one.
    /// - Returns: The encoded index.
    package func encoded(restoring digests: [Digest], of content: PatchContent) -> [UInt8] {
        var restored = RestoredDigests()
        for (position, digest) in digests.enumerated()
        where content.digests[position] == .omitted {
            restored.locations[location(of: content.pieces[position])] = digest
        }
        return encoded(with: restored)
    }

    /// The digests in place of omitted ones.
    struct RestoredDigests {
        /// The digests of pieces by their locations.
        var locations: [Location: Digest] = [:]

        /// Returns the digest of a frame.
        func digest(of frame: Frame, at position: Int) -> Digest {
            guard frame.digest == .omitted else { return frame.digest }
            return locations[Location(frame: position, offset: nil, length: frame.length)]
                ?? .omitted
        }

        /// Returns the digest of a file that is no whole frame.
        func digest(of file: File) -> Digest {
            guard file.digest == .omitted, case .part(let frame, let offset) = file.content else {
                return file.digest
            }
            let location = Location(frame: frame, offset: offset, length: Int(file.size))
            return locations[location] ?? .omitted
        }
    }
}
