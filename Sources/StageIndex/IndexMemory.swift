import StageModel

/// The memory that an index needs when it is decoded, and when its content is then written to files.
///
/// It is known before most of it is allocated: an index begins with the numbers of its parts, and states the lengths of
/// all paths before the first path.
struct IndexMemory {
    private let bundles: Int
    private let frames: Int
    private let entries: Int
    private let limit: ByteCount

    /// The bytes in which a reader stores a destination of a frame, one for each file that uses it.
    private static let bytesPerDestination = 24

    /// Creates the memory of an index with these numbers of parts.
    ///
    /// - Parameters:
    ///   - counts: The numbers of parts, as the index declares them.
    ///   - bounds: The bounds of the index.
    init(of counts: (bundles: Int, frames: Int, entries: Int), within bounds: IndexBounds) {
        bundles = counts.bundles
        frames = counts.frames
        entries = counts.entries
        limit = bounds.memory
    }

    /// Returns the number of bytes.
    ///
    /// - Parameters:
    ///   - pathBytes: The bytes of all paths.
    ///   - references: The references of all files to whole frames.
    /// - Returns: The memory.
    private func byteCount(pathBytes: Int, references: Int) -> ByteCount {
        let bytesPerFrame = MemoryLayout<ContentIndex.Frame>.stride + 2 * MemoryLayout<Int>.stride
        let bytesPerReference = MemoryLayout<Int32>.stride + Self.bytesPerDestination
        let bytesPerEntry = ContentIndex.EntryList.bytesPerEntry + Self.bytesPerDestination
        var bytes = pathBytes
        bytes += bundles * MemoryLayout<ContentIndex.Bundle>.stride
        bytes += frames * bytesPerFrame
        bytes += entries * bytesPerEntry
        bytes += references * bytesPerReference
        return ByteCount(bytes)
    }

    /// Checks that the index fits in the memory.
    ///
    /// - Parameters:
    ///   - pathBytes: The bytes of all paths, once these are known.
    ///   - references: The references of all files to whole frames; `nil` before they are known, which counts one for
    ///     each frame.
    ///   - offset: The number of bytes that have been decoded.
    /// - Throws: ``IndexError`` with the needed memory if it does not fit.
    func check(
        pathBytes: Int = 0,
        references: Int? = nil,
        at offset: Int
    ) throws(IndexError) {
        let needed = byteCount(pathBytes: pathBytes, references: references ?? frames)
        guard needed > limit else { return }
        throw IndexError(
            offset: offset,
            reason: "it takes \(needed) of memory, and \(limit) is available",
            neededMemory: needed
        )
    }
}
