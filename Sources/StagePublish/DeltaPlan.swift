import StageIndex
import StageModel

/// For each frame that one version has and another one has not, which bytes of the other one's files
/// are most like it.
///
/// Pure, and the same for the same two indexes.
struct DeltaPlan: Equatable {
    /// Frames that refer to one window.
    struct Group: Equatable, Sendable {
        var window: DeltaSet.Window
        /// The frames, by their positions in the newer index.
        var frames: [Int]
    }

    private(set) var groups: [Group] = []

    /// Plans for what an update from one version to another has to fetch.
    init(from old: ContentIndex, to new: ContentIndex) {
        var left = Set(IndexDifference(from: old, to: new).frames)
        guard !left.isEmpty else { return }
        let counterparts = Counterparts(in: old)
        var gathered: [Int: [Int]] = [:]
        for entry in new.entries {
            guard case .file(let file) = entry.kind, file.size > 0 else { continue }
            switch file.content {
            case .part(let frame, _):
                guard left.contains(frame), let twin = counterparts[entry.path] else { continue }
                gathered[frame, default: []].append(twin)
            case .frames(let list):
                guard list.contains(where: { left.contains($0) }),
                    let twin = counterparts[entry.path]
                else { continue }
                add(list, of: new, near: twin, of: old, &left)
            }
        }
        for frame in gathered.keys.sorted() where left.remove(frame) != nil {
            let segments = Self.segments(gathered[frame] ?? [], of: old)
            groups.append(Group(window: DeltaSet.Window(segments: segments), frames: [frame]))
        }
    }

    /// Whole files, one after the other, as far as a window reaches.
    private static func segments(_ entries: [Int], of old: ContentIndex) -> [DeltaSet.Segment] {
        var room = IndexLimits.windowLength
        var seen: Set<Int> = []
        var segments: [DeltaSet.Segment] = []
        for entry in entries where room > 0 && seen.insert(entry).inserted {
            let length = Int(min(old.size(of: entry), Int64(room)))
            segments.append(DeltaSet.Segment(entry: entry, offset: 0, length: length))
            room -= length
        }
        return segments
    }

    /// Adds the frames of a large file that are wanted.
    private mutating func add(
        _ list: [Int],
        of new: ContentIndex,
        near twin: Int,
        of old: ContentIndex,
        _ left: inout Set<Int>
    ) {
        let size = old.size(of: twin)
        let anchors = old.anchors(in: twin)
        var shift: Int64 = 0
        var offset: Int64 = 0
        var window: Range<Int64>?
        for frame in list {
            let length = Int64(new.frames[frame].length)
            defer { offset += length }
            if let place = anchors[new.frames[frame].digest] { shift = place - offset }
            guard left.remove(frame) != nil else { continue }
            let place = offset + shift + length / 2
            if !(window.map { Self.isAmid(place, $0, size) } ?? false) {
                let chosen = Self.window(around: place, size)
                window = chosen
                let segment = DeltaSet.Segment(
                    entry: twin,
                    offset: chosen.lowerBound,
                    length: chosen.count
                )
                let group = Group(window: DeltaSet.Window(segments: [segment]), frames: [])
                groups.append(group)
            }
            groups[groups.count - 1].frames.append(frame)
        }
    }

    /// The bytes of an old file around a place: more after it, where the next frames are going to be.
    private static func window(around place: Int64, _ size: Int64) -> Range<Int64> {
        let length = Int64(IndexLimits.windowLength)
        let start = max(0, min(place - length / 8 * 3, size - length))
        return start..<min(start + length, size)
    }

    /// Whether there is enough of a window to both sides of a place, as far as the file goes.
    private static func isAmid(_ place: Int64, _ window: Range<Int64>, _ size: Int64) -> Bool {
        let margin = Int64(IndexLimits.windowLength / 4)
        return (window.lowerBound == 0 || place >= window.lowerBound + margin)
            && (window.upperBound == size || place < window.upperBound - margin)
    }
}

extension ContentIndex {
    /// The bytes of the file at `entry`; 0 for what is no file.
    fileprivate func size(of entry: Int) -> Int64 {
        if case .file(let file) = entries[entry].kind { file.size } else { 0 }
    }

    /// Where frames are in a file, those that it has only once.
    fileprivate func anchors(in entry: Int) -> [Digest: Int64] {
        guard case .file(let file) = entries[entry].kind, case .frames(let list) = file.content
        else {
            return [:]
        }
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

/// Finds the file of an older version that a file of a newer one came from, by its path or its name.
private struct Counterparts {
    private let paths: [[UInt8]]
    private var byPath: [[UInt8]: Int] = [:]
    private var byName: [[UInt8]: [Int]] = [:]
    /// By what is left of a name without its digits: a version number may have changed.
    private var byShape: [[UInt8]: [Int]] = [:]

    /// How many files of one name are compared at most.
    private static let candidates = 256

    init(in index: ContentIndex) {
        // By their bytes: two names that Unicode takes for one are two for the file system.
        paths = index.entries.map { Array($0.path.text.utf8) }
        for (position, entry) in index.entries.enumerated() {
            guard case .file(let file) = entry.kind, file.size > 0 else { continue }
            let name = Self.name(of: paths[position])
            byPath[paths[position]] = position
            byName[name, default: []].append(position)
            byShape[Self.shape(of: name), default: []].append(position)
        }
    }

    /// The entry of the file that is most like the one at `path`: that at the same path; of those with
    /// the same name, that whose path ends with the most of the same bytes; one whose name differs by
    /// digits, if that is the only one.
    subscript(path: ContentPath) -> Int? {
        let path = Array(path.text.utf8)
        if let same = byPath[path] { return same }
        let name = Self.name(of: path)
        if let named = byName[name]?.prefix(Self.candidates) {
            func agreement(_ position: Int) -> Int {
                zip(paths[position].reversed(), path.reversed()).prefix { $0 == $1 }.count
            }
            // The first of equals.
            return named.reversed().max { agreement($0) < agreement($1) }
        }
        guard let alike = byShape[Self.shape(of: name)], alike.count == 1 else { return nil }
        return alike[0]
    }

    private static func name(of path: [UInt8]) -> [UInt8] {
        Array(path[(path.lastIndex(of: UInt8(ascii: "/")).map { $0 + 1 } ?? 0)...])
    }

    private static func shape(of name: [UInt8]) -> [UInt8] {
        name.filter { !(UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
    }
}
