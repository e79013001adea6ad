import StageModel

/// Lookup of the pieces of a version by their digests.
///
/// A hash table that stores a number of four bytes for each piece, and reads the digest from the version: it is in memory
/// together with two indexes, and a dictionary of digests takes ten times as much.
struct PieceTable {
    private let version: ContentIndex
    /// The numbers of the pieces, each in the first free slot from the hash of its digest; -1 in free slots.
    ///
    /// The number of slots is a power of two, and at least a quarter of them is free.
    private var slots: [Int32]

    /// Creates a table of all pieces of a version; of pieces with equal content, it has the first.
    init(of version: ContentIndex) {
        self.version = version
        var size = 1
        while size * 3 <= (version.frames.count + version.entries.count) * 4 { size *= 2 }
        slots = [Int32](repeating: -1, count: size)
        version.forEachPiece { piece, digest in
            let slot = slot(of: digest)
            guard slots[slot] < 0 else { return }
            slots[slot] = Int32(piece.frame ?? version.frames.count + piece.entry)
        }
    }

    /// The number after the largest one that a piece can have.
    var count: Int { version.frames.count + version.entries.count }

    /// Returns the number of the piece with a digest: the position of its frame, or that of its entry after all frames.
    func number(of digest: Digest) -> Int? {
        let number = slots[slot(of: digest)]
        return number < 0 ? nil : Int(number)
    }

    /// Returns the slot of the piece with a digest; a free slot if there is no such piece.
    private func slot(of digest: Digest) -> Int {
        let mask = slots.count - 1
        // Seeded, so that a publisher cannot choose digests that meet in one slot.
        var slot = digest.hashValue & mask
        while slots[slot] >= 0, self.digest(of: Int(slots[slot])) != digest {
            slot = (slot + 1) & mask
        }
        return slot
    }

    private func digest(of number: Int) -> Digest {
        let entry = number - version.frames.count
        return entry < 0 ? version.frames[number].digest : version.entries.digest(at: entry)
    }
}
