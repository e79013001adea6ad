import StageDigest
import StageIndex
import StageModel

/// Determines, for each frame that only the new version has, the most similar bytes of the old version's
/// files.
///
/// A pure value, equal for equal indexes and matches.
struct DeltaPlan: Equatable {
    /// Frames that refer to the same window.
    struct Group: Equatable, Sendable {
        var window: DeltaSet.Window
        /// The positions of the frames in the newer index.
        var frames: [Int]
    }

    private(set) var groups: [Group] = []

    /// A frame, and the old content to compare it with.
    private struct Candidate {
        var frame: Int
        var addresses: AddressSet
        /// The most similar address, by which frames are ordered.
        var best: Int64
    }

    /// Creates an empty plan.
    init() {}

    /// Plans the delta frames of an update between two versions.
    init(
        from old: ContentIndex,
        to new: ContentIndex,
        matches: SampleMatches = SampleMatches()
    ) {
        let left = Set(IndexDifference(from: old, to: new).frames)
        guard !left.isEmpty else { return }
        let addresses = ContentAddresses(of: old)
        let choice = OldContentChoice(matches: matches, addresses: addresses)
        let candidates = Self.candidates(for: left, from: old, to: new, by: choice)
        pack(candidates, in: addresses)
    }

    /// Combines frames into groups: frames that share old content with the previous ones share their window
    /// while it has space.
    private mutating func pack(_ candidates: [Candidate], in addresses: ContentAddresses) {
        var frames: [Int] = []
        var window = AddressSet()
        func group() -> Group {
            let segments = addresses.segments(of: window.ranges)
            return Group(window: DeltaSet.Window(segments: segments), frames: frames)
        }
        for candidate in candidates.sorted(by: { ($0.best, $0.frame) < ($1.best, $1.frame) }) {
            var union = window
            union.formUnion(candidate.addresses)
            // Old content that a frame does not need makes references longer and takes memory.
            let isShared = (union.count - window.count) * 2 <= candidate.addresses.count
            let hasRoom = union.count <= (isShared ? Int64(IndexLimits.windowLength) : Self.small)
            if !frames.isEmpty, !hasRoom {
                groups.append(group())
                frames = []
                union = candidate.addresses
            }
            frames.append(candidate.frame)
            window = union
        }
        if !frames.isEmpty { groups.append(group()) }
    }

    /// The size in bytes up to which unrelated frames share a window, since many small windows need a longer
    /// table.
    private static let small = Int64(256 << 10)

    private static func candidates(
        for left: Set<Int>,
        from old: ContentIndex,
        to new: ContentIndex,
        by choice: OldContentChoice
    ) -> [Candidate] {
        let counterparts = Counterparts(in: old)
        var parts: [Int: [OldContentChoice.Piece]] = [:]
        var chosen: [Int: OldContentChoice.Result] = [:]
        for position in new.entries.indices {
            guard let file = new.entries.file(at: position), file.size > 0 else { continue }
            let path = new.entries.pathBytes(at: position)
            switch file.content {
            case .part(let frame, let offset):
                guard left.contains(frame) else { continue }
                let counterpart = counterparts[path].flatMap(choice.addresses.range(ofEntry:))
                let piece = OldContentChoice.Piece(
                    range: offset..<offset + Int(file.size),
                    counterpart: counterpart?.prefix(OldContentChoice.reach)
                )
                parts[frame, default: []].append(piece)
            case .frames(let list):
                guard list.contains(where: { left.contains($0) && chosen[$0] == nil }) else {
                    continue
                }
                let counterpart = counterparts[path]
                choose(
                    list,
                    of: new,
                    near: counterpart,
                    of: old,
                    missing: left,
                    by: choice,
                    chosen: &chosen
                )
            }
        }
        for (frame, pieces) in parts where chosen[frame] == nil {
            chosen[frame] = choice.oldContent(for: pieces, of: frame)
        }
        return chosen.compactMap { frame, result in
            guard let first = result.addresses.ranges.first else { return nil }
            let best = result.best ?? first.lowerBound
            return Candidate(frame: frame, addresses: result.addresses, best: best)
        }
    }

    /// Chooses old content for the needed frames of a large file.
    private static func choose(
        _ list: [Int],
        of new: ContentIndex,
        near counterpart: Int?,
        of old: ContentIndex,
        missing left: Set<Int>,
        by choice: OldContentChoice,
        chosen: inout [Int: OldContentChoice.Result]
    ) {
        let file = counterpart.flatMap(choice.addresses.range(ofEntry:))
        let anchors = counterpart.map(old.anchors(in:)) ?? [:]
        // Content is expected to continue where that of the previous frame ends.
        var expected = file?.lowerBound
        for frame in list {
            let length = Int64(new.frames[frame].length)
            if let file, let offset = anchors[new.frames[frame].digest] {
                expected = file.lowerBound + offset
            } else if left.contains(frame), chosen[frame] == nil {
                let near = expected.flatMap { choice.surroundings(of: $0, length: length) }
                let piece = OldContentChoice.Piece(range: 0..<Int(length), counterpart: near)
                let result = choice.oldContent(for: [piece], of: frame)
                chosen[frame] = result
                if let best = result.best { expected = best }
            }
            expected = expected.map { $0 + length }
        }
    }
}

extension ContentIndex {
    /// Returns the offsets of frames that occur exactly once in a file.
    fileprivate func anchors(in entry: Int) -> [Digest: Int64] {
        guard case .frames(let list) = entries.file(at: entry)?.content else { return [:] }
        var anchors: [Digest: Int64] = [:]
        var repeated: Set<Digest> = []
        var offset: Int64 = 0
        for frame in list {
            let digest = frames[frame].digest
            if anchors.updateValue(offset, forKey: digest) != nil { repeated.insert(digest) }
            offset += Int64(frames[frame].length)
        }
        for digest in repeated { anchors[digest] = nil }
        return anchors
    }
}

extension Range<Int64> {
    /// Returns at most the first `count` values.
    fileprivate func prefix(_ count: Int64) -> Self {
        lowerBound..<Swift.min(upperBound, lowerBound + count)
    }
}
