import StageIndex
import StageModel

/// Chooses the pieces of an older version that have the most in common with pieces of a newer one: by samples of their
/// content, and by path and offset.
struct PrefixChoice {
    private let new: ContentIndex
    private let source: PatchContent
    private let matches: SampleMatches
    private let counterparts: Counterparts
    /// The pieces of the older version by the addresses of their first bytes.
    private let piecesByAddress: [(address: Int64, piece: Int)]
    /// The pieces of each file of the older version, by entry, in the order of their offsets.
    private let ofFile: [Int: [Int]]

    /// The weight of a sample that occurs at one address; divisible by 1 to 8, the numbers of addresses that a sample may have.
    private static let whole = 840
    /// The number of bytes before and after the same offset of the counterpart whose pieces get a weight.
    private static let reach = Int64(1 << 20)

    /// Prepares the choice; `source` are the pieces of `old`, and `matches` the locations in `old` of samples of `new`.
    init(
        from old: ContentIndex,
        to new: ContentIndex,
        source: PatchContent,
        matches: SampleMatches
    ) {
        (self.new, self.source, self.matches) = (new, source, matches)
        counterparts = Counterparts(in: old)
        let addresses = ContentAddresses(of: old)
        var piecesByAddress: [(address: Int64, piece: Int)] = []
        var ofFile: [Int: [Int]] = [:]
        for (position, piece) in source.pieces.enumerated() {
            ofFile[piece.entry, default: []].append(position)
            guard let range = addresses.range(ofEntry: piece.entry) else { continue }
            piecesByAddress.append((range.lowerBound + piece.offset, position))
        }
        self.piecesByAddress = piecesByAddress.sorted { $0.address < $1.address }
        self.ofFile = ofFile.mapValues { pieces in
            pieces.sorted { source.pieces[$0].offset < source.pieces[$1].offset }
        }
    }

    /// Returns the ranges of the older version's pieces for some pieces of a patch, at most `limit` bytes.
    func ranges(
        for pieces: ArraySlice<PatchContent.Piece>,
        limit: Int64
    ) -> [Range<Int64>] {
        let weights = spread(weights(for: pieces))
        let found = weights.indices.filter { weights[$0] > 0 }
        let densities = found.map {
            weights[$0] * IndexLimits.frameLength / source.pieces[$0].length
        }
        // Among pieces with equal densities, chooses the first ones.
        let ranked = found.indices.sorted {
            (-densities[$0], found[$0]) < (-densities[$1], found[$1])
        }
        var (chosen, remaining): ([Int], Int64) = ([], limit)
        for piece in ranked.lazy.map({ found[$0] })
        where Int64(source.pieces[piece].length) <= remaining {
            chosen.append(piece)
            remaining -= Int64(source.pieces[piece].length)
        }
        return merged(chosen.sorted())
    }

    private func merged(_ pieces: [Int]) -> [Range<Int64>] {
        var ranges: [Range<Int64>] = []
        for piece in pieces {
            let range = source.start(of: piece)..<source.ends[piece]
            if let last = ranges.last, last.upperBound == range.lowerBound {
                ranges[ranges.count - 1] = last.lowerBound..<range.upperBound
            } else {
                ranges.append(range)
            }
        }
        return ranges
    }

    /// Returns a weight for each piece of the older version: its similarity to the content.
    private func weights(for pieces: ArraySlice<PatchContent.Piece>) -> [Int] {
        var weights = [Int](repeating: 0, count: source.pieces.count)
        var last: (frame: Int, samples: [SampleMatches.Sample]) = (-1, [])
        for piece in pieces {
            guard let (frame, start) = new.frame(of: piece) else { continue }
            if frame != last.frame { last = (frame, matches.samples(of: frame)) }
            let range = start..<start + piece.length
            for sample in last.samples where range.contains(sample.offset - 1) {
                for address in sample.addresses {
                    guard let found = self.piece(at: address - 1) else { continue }
                    weights[found] += Self.whole / sample.addresses.count
                }
            }
            guard let counterpart = counterparts[new.entries.pathBytes(at: piece.entry)] else {
                continue
            }
            let near = piece.offset - Self.reach..<piece.offset + Int64(piece.length) + Self.reach
            // The weight of a quarter of the piece's samples, distributed over the pieces nearby by their lengths.
            let share = (piece.length * Self.whole) >> (matches.sampler.bits + 2)
            for position in self.pieces(of: counterpart, in: near) {
                weights[position] += share * source.pieces[position].length / near.count
            }
        }
        return weights
    }

    /// Adds a quarter of each weight to the neighbours in the same file: changes that lie close to each other leave no
    /// samples between them.
    private func spread(_ weights: [Int]) -> [Int] {
        var result = weights
        for piece in weights.indices.dropFirst()
        where source.pieces[piece - 1].entry == source.pieces[piece].entry {
            result[piece] += weights[piece - 1] / 4
            result[piece - 1] += weights[piece] / 4
        }
        return result
    }

    /// Returns the pieces of a file of the older version that overlap a range of offsets.
    private func pieces(of entry: Int, in range: Range<Int64>) -> ArraySlice<Int> {
        guard let own = ofFile[entry] else { return [] }
        let first = own.partitioningIndex { position in
            let piece = source.pieces[position]
            return piece.offset + Int64(piece.length) > range.lowerBound
        }
        return own[first...].prefix { source.pieces[$0].offset < range.upperBound }
    }

    /// Returns the piece of the older version that contains the byte at an address.
    private func piece(at address: Int64) -> Int? {
        let next = piecesByAddress.partitioningIndex { $0.address > address }
        guard next > 0 else { return nil }
        let (start, piece) = piecesByAddress[next - 1]
        return address - start < source.pieces[piece].length ? piece : nil
    }
}
