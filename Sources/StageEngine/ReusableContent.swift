import StageContainer
import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// Content of a new version that needs no network: in the staging area already, or in the staged generation.
///
/// The index of the generation tells what to expect before a file is read, so that the network can fetch the
/// rest at the same time. Content counts once it has been read and compared.
struct ReusableContent: Sendable {
    /// The content of the area, and the content that the staged generation has according to its index or listing.
    let expected: IndexedTree.Inventory
    private let tree: IndexedTree
    /// The files and frames that are in the area.
    let areaInventory: IndexedTree.Inventory
    private let base: IndexSource.Base?

    /// Expected content that is missing or does not match its digest.
    struct UnusableContent: Sendable {
        /// Files without any content in the area, by their entries.
        var files: [Int] = []
        /// Missing frames, including those of the lost files.
        var frames: Set<Int> = []
    }

    init(of tree: IndexedTree, areaInventory: IndexedTree.Inventory, base: IndexSource.Base?) {
        self.tree = tree
        self.areaInventory = areaInventory
        self.base = base
        var expected = areaInventory
        if let map = base?.contentMap {
            for (position, file) in tree.index.files where !areaInventory.done[position] {
                expected.done[position] = map.path(of: file) != nil
            }
            for frame in tree.frames(except: expected.done)
            where map.location(of: tree.index.frames[frame]) != nil {
                expected.frames.insert(frame)
            }
        }
        self.expected = expected
    }

    /// The frames to fetch, by their positions in the index.
    var missing: [Int] {
        tree.frames(except: expected.done).filter { !expected.frames.contains($0) }
    }

    /// Returns the reusable content with a later inventory of the area.
    func adding(_ areaInventory: IndexedTree.Inventory) -> ReusableContent {
        ReusableContent(of: tree, areaInventory: areaInventory, base: base)
    }

    /// The content of the area alone: files of the generation may differ from its index.
    var withoutBase: ReusableContent {
        ReusableContent(of: tree, areaInventory: areaInventory, base: nil)
    }

    /// Takes the expected content from the generation; returns `nil` if stopped early.
    func take(unless isStopped: () -> Bool) throws(FileError) -> UnusableContent? {
        var lost = UnusableContent()
        guard let base else { return lost }
        var old = DirectoryCursor(base.content)
        var cursor = DirectoryCursor(tree.content)
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        for (position, file) in tree.index.files
        where expected.done[position] && !areaInventory.done[position] {
            if isStopped() { return nil }
            let path = base.contentMap.path(of: file) ?? ""
            let isTaken = try tree.reuseFile(
                for: position,
                from: path,
                of: &old,
                into: &cursor,
                using: &buffer
            )
            if !isTaken { lost.files.append(position) }
        }
        var source = Source()
        for position in expected.frames.subtracting(areaInventory.frames).sorted() {
            if isStopped() { return nil }
            if let bytes = try source.content(
                of: position,
                in: tree,
                locatedBy: base.contentMap,
                using: &old
            ) {
                _ = try tree.writeFrame(
                    position,
                    content: bytes,
                    except: expected.done,
                    using: &cursor
                )
            } else {
                lost.frames.insert(position)
            }
        }
        addFrames(&lost)
        return lost
    }

    /// Adds all frames of lost files.
    ///
    /// Parts that an earlier run left are not trusted, since the file may have been removed.
    private func addFrames(_ lost: inout UnusableContent) {
        guard !lost.files.isEmpty else { return }
        var others = [Bool](repeating: true, count: expected.done.count)
        for file in lost.files { others[file] = false }
        lost.frames.formUnion(tree.frames(except: others))
    }

    /// The file that the last frame was read from.
    private struct Source: ~Copyable {
        private var path: String?
        private var file: File?

        /// Reads a frame; returns `nil` if its content does not match its digest.
        mutating func content(
            of position: Int,
            in tree: IndexedTree,
            locatedBy map: BaseContentMap,
            using old: inout DirectoryCursor
        ) throws(FileError) -> [UInt8]? {
            let frame = tree.index.frames[position]
            guard let location = map.location(of: frame) else { return nil }
            if path != location.path {
                path = location.path
                let there = try old.location(of: location.path)
                file = try there?.directory.file(reading: there?.name ?? FilePath())
            }
            var bytes = [UInt8](repeating: 0, count: frame.length)
            let count = try file?.read(into: &bytes, at: location.offset) ?? 0
            return count == frame.length && Digest(of: bytes) == frame.digest ? bytes : nil
        }
    }
}
