import StageContainer
import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// Restores the pieces of a patch from the staged generation, part by part.
struct PatchDecoder: Sendable {
    let patch: UsablePatch
    let base: IndexSource.Base

    /// The result of decoding a patch.
    struct Result {
        /// The content of the area, with the pieces of the patch.
        var inventory: IndexedTree.Inventory
        /// The reason why the patch did not provide all of its pieces; `nil` if it did.
        var fault: String?
    }

    /// The digests of the content of a patch.
    struct Digests {
        /// The digests of the pieces, in their order; fewer than there are pieces after a fault.
        var digests: [Digest]
        /// The reason why the patch did not provide all of its pieces; `nil` if it did.
        var fault: String?
    }

    /// Decodes a patch whose digest was verified, and writes the missing content into the staging area; skips parts whose pieces
    /// are all there.
    ///
    /// Each piece is written only if it has the digest in the index. If a file of the staged generation or a part of the
    /// patch is damaged, other sources provide the pieces that fail this check.
    ///
    /// - Parameters:
    ///   - path: The patch.
    ///   - tree: The files in the staging area.
    ///   - local: The content that needs no patch.
    ///   - isStopped: Called between pieces of the content; `true` stops.
    /// - Returns: The result; `nil` if stopped early.
    /// - Throws: ``FileError`` if the patch cannot be read or the content cannot be written.
    ///
    /// This function must not be asynchronous: the optimiser of Swift 6.3 would free the memory of the
    /// decompressor and the bytes in the wrong order, which crashes the process.
    func decode(
        _ path: FilePath,
        into tree: IndexedTree,
        reusing local: ReusableContent,
        unless isStopped: () -> Bool
    ) throws(FileError) -> Result? {
        var cutter = PieceCutter(patch.content, for: PieceWriter(tree, local: local))
        guard try decode(path, to: &cutter, unless: isStopped) else { return nil }
        return Result(inventory: cutter.consumer.inventory, fault: cutter.fault)
    }

    /// Decodes a patch whose digest was verified, and returns the digests of its pieces; writes nothing.
    ///
    /// Pieces whose digests the index does not omit must have these. Ends at the first part that does not provide all of its pieces:
    /// the digests do not restore an index then.
    ///
    /// - Parameters:
    ///   - path: The patch.
    ///   - isStopped: Called between pieces of the content; `true` stops.
    /// - Returns: The digests; `nil` if stopped early.
    /// - Throws: ``FileError`` if the patch cannot be read.
    ///
    /// This function must not be asynchronous, as ``decode(_:into:reusing:unless:)``.
    func digests(
        of path: FilePath,
        unless isStopped: () -> Bool
    ) throws(FileError) -> Digests? {
        var cutter = PieceCutter(patch.content, for: PieceDigests())
        guard try decode(path, to: &cutter, unless: isStopped) else { return nil }
        return Digests(digests: cutter.consumer.digests, fault: cutter.fault)
    }

    /// Decodes the parts that are needed; returns `false` if stopped early.
    private func decode<Consumer: PieceConsumer & ~Copyable>(
        _ path: FilePath,
        to cutter: inout PieceCutter<Consumer>,
        unless isStopped: () -> Bool
    ) throws(FileError) -> Bool {
        let file = try File.open(readingRegular: path)
        let read = try PatchTable.read(ofPatchWith: file.status().size) {
            (count) throws(FileError) in try file.head(count)
        }
        guard let (table, frames) = read, patch.accepts(table) else {
            cutter.fault = "its table is not that of these versions"
            return true
        }
        for (part, frame) in zip(table.parts, frames) where !cutter.lacksRequiredPieces {
            cutter.begin(contentOfLength: part.contentLength)
            guard cutter.isNeeded else { continue }
            guard UsablePatch.memory(for: part) <= ByteCount(AvailableMemory.byteCount()) else {
                cutter.fault = "a part takes more memory than is available"
                continue
            }
            let isWhole = try decode(part, in: frame, of: file, to: &cutter, unless: isStopped)
            guard let isWhole else { return false }
            if !isWhole { cutter.fault = "a part is damaged, or the files that it refers to" }
        }
        return true
    }

    /// Decodes a part; returns whether it provided all of its pieces, and `nil` if stopped early.
    private func decode<Consumer: PieceConsumer & ~Copyable>(
        _ part: PatchTable.Part,
        in frame: Range<Int64>,
        of file: borrowing File,
        to cutter: inout PieceCutter<Consumer>,
        unless isStopped: () -> Bool
    ) throws(FileError) -> Bool? {
        // Returns the heap memory of both sides to the system.
        defer { HeapMemory.release() }
        guard let prefix = readPrefix(part, unless: isStopped) else { return nil }
        var offset = frame.lowerBound
        var decompressor = PrefixedStreamDecompressor(window: Int64(part.decompressedLength))
        var runs = SimilarRunDecoder(part)
        var stopped = false
        // If decompression fails midway, the pieces before are kept.
        let isWhole = try decompressor.decompress(after: prefix.span) {
            (buffer) throws(FileError) in
            let count = try file.read(into: &buffer, at: offset)
            let own = min(count, Int(frame.upperBound - offset))
            offset += Int64(own)
            return own
        } to: { (bytes) throws(FileError) in
            stopped = isStopped()
            if stopped { return false }
            if part.runsLength == 0 { return try cutter.take(bytes) }
            // Any error means that the part is damaged.
            guard let content = try? runs.restore(bytes, after: prefix.span) else { return false }
            return try cutter.take(content.span)
        }
        return stopped ? nil : isWhole && cutter.isComplete
    }

    /// Reads the bytes that a part refers to, with zeros for those that cannot be read; `nil` if stopped early.
    private func readPrefix(_ part: PatchTable.Part, unless isStopped: () -> Bool) -> [UInt8]? {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(part.prefixLength)
        var reader = StagedPieceReader(base)
        var stopped = false
        for range in part.prefix {
            patch.source.forEachPiece(in: range) { piece, own in
                stopped = stopped || isStopped()
                if !stopped { bytes += reader.bytes(of: piece, in: own) }
            }
        }
        return stopped ? nil : bytes
    }
}

/// Reads pieces of the staged generation.
private struct StagedPieceReader: ~Copyable {
    private let base: IndexSource.Base
    private var cursor: DirectoryCursor
    /// The entry of the last piece, and its file.
    private var entry: Int?
    private var file: File?

    init(_ base: IndexSource.Base) {
        self.base = base
        cursor = DirectoryCursor(base.content)
    }

    /// Returns a part of a piece, with zeros for bytes that cannot be read.
    mutating func bytes(of piece: PatchContent.Piece, in range: Range<Int>) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: range.count)
        do throws(FileError) {
            if piece.entry != entry {
                entry = piece.entry
                file = nil
                if let path = base.contentMap.file(at: piece.entry)?.path,
                    let location = try cursor.location(of: path)
                {
                    file = try location.directory.file(reading: location.name)
                }
            }
            _ = try file?.read(into: &bytes, at: piece.offset + Int64(range.lowerBound))
        } catch {
            // The cursor may be in a directory that cannot be read.
            cursor = DirectoryCursor(base.content)
        }
        return bytes
    }
}

/// A use of the pieces of a patch.
private protocol PieceConsumer: ~Copyable {
    /// `true` if pieces are useless unless the patch provides all of them.
    static var requiresAllPieces: Bool { get }

    /// Returns whether a piece is used; a part without such pieces is not decoded.
    func needs(_ piece: PatchContent.Piece, with digest: Digest) -> Bool

    /// Takes the content of a piece; returns `false` if it has another digest than the index names.
    mutating func take(
        _ piece: PatchContent.Piece,
        with digest: Digest,
        content: [UInt8]
    ) throws(FileError) -> Bool
}

/// Cuts the content of a part into its pieces.
private struct PieceCutter<Consumer: PieceConsumer & ~Copyable>: ~Copyable {
    private(set) var consumer: Consumer
    /// The reason why the patch did not provide all of its pieces; `nil` if there is none so far.
    var fault: String?
    private let content: PatchContent
    /// The pieces of the part that are still to come.
    private var left = 0..<0
    /// The position after the last piece of the part.
    private var end = 0
    /// The number of pieces of the part whose digest differs from the one in the index.
    private var rejected = 0
    /// The beginning of the next piece.
    private var buffer: [UInt8] = []

    init(_ content: PatchContent, for consumer: consuming Consumer) {
        self.content = content
        self.consumer = consumer
    }

    /// Begins with the next part, whose content follows that of the part before.
    mutating func begin(contentOfLength length: Int) {
        let start = end
        end = content.position(at: content.start(of: start) + Int64(length))
        left = start..<end
        rejected = 0
        buffer.removeAll(keepingCapacity: true)
    }

    /// `true` if a piece of the part is used.
    var isNeeded: Bool {
        for position in left
        where consumer.needs(content.pieces[position], with: content.digests[position]) {
            return true
        }
        return false
    }

    /// `true` if the part did not provide all of its pieces, and the pieces of other parts are useless without them.
    ///
    /// A piece with another digest than the index names counts as provided.
    var lacksRequiredPieces: Bool { Consumer.requiresAllPieces && !left.isEmpty }

    /// `true` once all pieces of the part were taken and had the digests in the index.
    var isComplete: Bool { left.isEmpty && rejected == 0 }

    /// Takes the next bytes; returns `false` after the last piece.
    mutating func take(_ bytes: Span<UInt8>) throws(FileError) -> Bool {
        var offset = 0
        while offset < bytes.count {
            guard let position = left.first else { return false }
            let piece = content.pieces[position]
            let end = min(offset + piece.length - buffer.count, bytes.count)
            unsafe bytes.extracting(offset..<end).withUnsafeBufferPointer {
                unsafe buffer.append(contentsOf: $0)
            }
            offset = end
            guard buffer.count == piece.length else { break }
            let digest = content.digests[position]
            if try !consumer.take(piece, with: digest, content: buffer) { rejected += 1 }
            buffer.removeAll(keepingCapacity: true)
            left = position + 1..<self.end
        }
        return true
    }
}

/// Computes the digests of pieces.
private struct PieceDigests: ~Copyable, PieceConsumer {
    static var requiresAllPieces: Bool { true }

    private(set) var digests: [Digest] = []

    func needs(_ piece: PatchContent.Piece, with digest: Digest) -> Bool { true }

    mutating func take(
        _ piece: PatchContent.Piece,
        with digest: Digest,
        content: [UInt8]
    ) throws(FileError) -> Bool {
        let found = Digest(of: content)
        digests.append(found)
        return digest == .omitted || digest == found
    }
}

/// Writes pieces that are missing.
private struct PieceWriter: ~Copyable, PieceConsumer {
    static var requiresAllPieces: Bool { false }

    /// The content of the area so far.
    private(set) var inventory: IndexedTree.Inventory
    private let tree: IndexedTree
    /// The entries that come from another source.
    private let others: [Bool]
    private let missing: Set<Int>
    /// The entries of small files that are missing, by their content.
    private var smallFiles: [Digest: [Int]] = [:]
    private var cursor: DirectoryCursor

    init(_ tree: IndexedTree, local: ReusableContent) {
        self.tree = tree
        inventory = local.areaInventory
        others = local.expected.done
        missing = Set(local.missing)
        cursor = DirectoryCursor(tree.content)
        for (position, file) in tree.index.files where file.size > 0 && !others[position] {
            if case .part = file.content { smallFiles[file.digest, default: []].append(position) }
        }
    }

    func needs(_ piece: PatchContent.Piece, with digest: Digest) -> Bool {
        if let frame = piece.frame {
            return missing.contains(frame) && !inventory.frames.contains(frame)
        }
        return smallFiles[digest]?.contains { !inventory.done[$0] } ?? false
    }

    mutating func take(
        _ piece: PatchContent.Piece,
        with digest: Digest,
        content: [UInt8]
    ) throws(FileError) -> Bool {
        guard Digest(of: content) == digest else { return false }
        guard needs(piece, with: digest) else { return true }
        if let frame = piece.frame {
            _ = try tree.writeFrame(frame, content: content, except: others, using: &cursor)
            inventory.frames.insert(frame)
        } else {
            for position in smallFiles[digest] ?? [] where !inventory.done[position] {
                try tree.writeFile(position, content: content, using: &cursor)
                inventory.done[position] = true
            }
        }
        return true
    }
}
