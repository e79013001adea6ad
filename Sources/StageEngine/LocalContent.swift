import StageContainer
import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// What of a new version needs no network: what is in the staging area already, and what the staged
/// generation has.
///
/// What is in the generation is known from its index before any of it is read, so that the rest can be
/// asked for at once. It counts when it has been read and compared.
struct LocalContent: Sendable {
    /// What is in the area, and what the generation is said to have.
    let expected: IndexedTree.Inventory
    private let tree: IndexedTree
    /// Files and frames that are in the area.
    let begun: IndexedTree.Inventory
    private let base: IndexSource.Base?

    /// What was expected and is not there, or is not what it ought to be.
    struct Lost: Sendable {
        /// Files that no byte was written into, by their entries.
        var files: [Int] = []
        /// Frames that are missing, those of these files included.
        var frames: Set<Int> = []
    }

    init(of tree: IndexedTree, begun: IndexedTree.Inventory, base: IndexSource.Base?) {
        self.tree = tree
        self.begun = begun
        self.base = base
        var expected = begun
        if let held = base?.held {
            for (position, file) in tree.index.files where !begun.done[position] {
                expected.done[position] = held.path(of: file) != nil
            }
            for frame in tree.frames(except: expected.done)
            where held.place(of: tree.index.frames[frame]) != nil {
                expected.frames.insert(frame)
            }
        }
        self.expected = expected
    }

    /// The frames that are needed from elsewhere, by their positions in the index.
    var missing: [Int] {
        tree.frames(except: expected.done).filter { !expected.frames.contains($0) }
    }

    /// The same after files have been added to the area, by their entries.
    func adding(_ done: [Bool]) -> LocalContent {
        let begun = IndexedTree.Inventory(done: done, frames: self.begun.frames)
        return LocalContent(of: tree, begun: begun, base: base)
    }

    /// Takes over what the generation has; `nil` if it was stopped before the end.
    func take(unless isStopped: () -> Bool) throws(FileError) -> Lost? {
        var lost = Lost()
        guard let base else { return lost }
        var old = DirectoryCursor(base.content)
        var cursor = DirectoryCursor(tree.content)
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        for (position, file) in tree.index.files
        where expected.done[position] && !begun.done[position] {
            if isStopped() { return nil }
            let path = base.held.path(of: file) ?? ""
            let isTaken = try tree.take(position, from: path, &old, &cursor, using: &buffer)
            if !isTaken { lost.files.append(position) }
        }
        var source = Source()
        for position in expected.frames.subtracting(begun.frames).sorted() {
            if isStopped() { return nil }
            if let bytes = try source.content(of: position, in: tree, base.held, &old) {
                _ = try tree.write(position, bytes, except: expected.done, &cursor)
            } else {
                lost.frames.insert(position)
            }
        }
        addFrames(&lost)
        return lost
    }

    /// All frames of a file that is lost, since parts of it that an earlier run left are not trusted to be
    /// there still.
    private func addFrames(_ lost: inout Lost) {
        guard !lost.files.isEmpty else { return }
        var others = [Bool](repeating: true, count: expected.done.count)
        for file in lost.files { others[file] = false }
        lost.frames.formUnion(tree.frames(except: others))
    }

    /// The file that frames were last found in.
    private struct Source: ~Copyable {
        private var path: String?
        private var file: File?

        /// Reads a frame; `nil` if it is not what it ought to be.
        mutating func content(
            of position: Int,
            in tree: IndexedTree,
            _ held: HeldContent,
            _ old: inout DirectoryCursor
        ) throws(FileError) -> [UInt8]? {
            let frame = tree.index.frames[position]
            guard let place = held.place(of: frame) else { return nil }
            if path != place.path {
                path = place.path
                let there = try old.place(of: place.path)
                file = try there?.directory.file(reading: there?.name ?? FilePath())
            }
            var bytes = [UInt8](repeating: 0, count: frame.length)
            let count = try file?.read(into: &bytes, at: place.offset) ?? 0
            return count == frame.length && Digest(of: bytes) == frame.digest ? bytes : nil
        }
    }
}
