import StageContainer
import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// Restores the pieces of a patch from the staged generation, and writes them into the staging area.
///
/// Each piece is written only if it has the digest that the index names: a damaged file of the staged generation,
/// or a patch that is not what it should be, costs pieces, which other sources bring.
struct PatchDecoder: Sendable {
    let patch: UsablePatch
    let tree: IndexedTree
    let base: IndexSource.Base
    /// The content that needs no patch.
    let local: ReusableContent

    /// The result of decoding a patch.
    struct Result {
        /// The content of the area, with the pieces of the patch.
        var inventory: IndexedTree.Inventory
        /// `true` if the patch brought all of its pieces.
        var isComplete: Bool
    }

    /// Decodes a patch whose digest was verified.
    ///
    /// - Parameters:
    ///   - path: The patch.
    ///   - isStopped: Called between parts of the content; `true` stops.
    /// - Returns: The result; `nil` if stopped early.
    /// - Throws: ``FileError`` if the patch cannot be read or the content cannot be written.
    ///
    /// This function must not be asynchronous: the optimiser of Swift 6.3 would free the memory of the
    /// decompressor and the bytes in the wrong order, which crashes the process.
    func decode(_ path: FilePath, unless isStopped: () -> Bool) throws(FileError) -> Result? {
        // Returns the heap memory of both versions to the system.
        defer { HeapMemory.release() }
        guard let prefix = readPrefix(unless: isStopped) else { return nil }
        let file = try File.open(readingRegular: path)
        var offset: Int64 = 0
        var writer = PieceWriter(patch.content.pieces, of: tree, local: local)
        var decompressor = PrefixedStreamDecompressor(window: patch.content.size)
        var stopped = false
        // A patch that does not decompress completely leaves the pieces that were written.
        let isWhole = try decompressor.decompress(after: prefix.span) {
            (buffer) throws(FileError) in
            let count = try file.read(into: &buffer, at: offset)
            offset += Int64(count)
            return count
        } to: { (bytes) throws(FileError) in
            stopped = isStopped()
            if stopped { return false }
            return try writer.take(bytes)
        }
        if stopped { return nil }
        return Result(
            inventory: writer.inventory,
            isComplete: isWhole && writer.rejected == 0 && writer.isAtEnd
        )
    }

    /// Reads the pieces that the patch refers to, with zeros for those that cannot be read; `nil` if stopped early.
    private func readPrefix(unless isStopped: () -> Bool) -> [UInt8]? {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(Int(patch.gone.size))
        var cursor = DirectoryCursor(base.content)
        var entry: Int?
        var file: File?
        for piece in patch.gone.pieces {
            if isStopped() { return nil }
            var part = [UInt8](repeating: 0, count: piece.length)
            do throws(FileError) {
                if piece.entry != entry {
                    entry = piece.entry
                    file = nil
                    let path = patch.old.entries.path(at: piece.entry).text
                    if let place = try cursor.place(of: path) {
                        file = try place.directory.file(reading: place.name)
                    }
                }
                _ = try file?.read(into: &part, at: piece.offset)
            } catch {
                // The cursor may be in a directory that cannot be read.
                cursor = DirectoryCursor(base.content)
            }
            bytes += part
        }
        return bytes
    }
}

/// Cuts the content of a patch into its pieces, and writes those that are missing.
private struct PieceWriter: ~Copyable {
    /// The content of the area so far.
    private(set) var inventory: IndexedTree.Inventory
    private let tree: IndexedTree
    private let pieces: [PatchContent.Piece]
    /// The entries that come from another source.
    private let others: [Bool]
    private let missing: Set<Int>
    /// The entries of small files that are missing, by their content.
    private var smallFiles: [Digest: [Int]] = [:]
    private var cursor: DirectoryCursor
    /// The number of pieces with another digest than the index names.
    private(set) var rejected = 0
    /// The position of the piece that `buffer` has the beginning of.
    private var place = 0
    private var buffer: [UInt8] = []

    init(_ pieces: [PatchContent.Piece], of tree: IndexedTree, local: ReusableContent) {
        self.pieces = pieces
        self.tree = tree
        inventory = local.begun
        others = local.expected.done
        missing = Set(local.missing)
        cursor = DirectoryCursor(tree.content)
        for (position, file) in tree.index.files where file.size > 0 && !others[position] {
            if case .part = file.content { smallFiles[file.digest, default: []].append(position) }
        }
    }

    /// `true` after the last piece.
    var isAtEnd: Bool { place == pieces.count }

    /// Takes the next bytes; returns `false` after the last piece.
    mutating func take(_ bytes: Span<UInt8>) throws(FileError) -> Bool {
        var offset = 0
        while offset < bytes.count {
            guard place < pieces.count else { return false }
            let piece = pieces[place]
            let end = min(offset + piece.length - buffer.count, bytes.count)
            unsafe bytes.extracting(offset..<end).withUnsafeBufferPointer {
                unsafe buffer.append(contentsOf: $0)
            }
            offset = end
            guard buffer.count == piece.length else { break }
            if Digest(of: buffer) == piece.digest { try write(piece) } else { rejected += 1 }
            buffer.removeAll(keepingCapacity: true)
            place += 1
        }
        return true
    }

    private mutating func write(_ piece: PatchContent.Piece) throws(FileError) {
        if let frame = piece.frame {
            guard missing.contains(frame) else { return }
            _ = try tree.writeFrame(frame, content: buffer, except: others, using: &cursor)
            inventory.frames.insert(frame)
        } else {
            for position in smallFiles[piece.digest] ?? [] where !inventory.done[position] {
                try tree.writeFile(position, content: buffer, using: &cursor)
                inventory.done[position] = true
            }
        }
    }
}
