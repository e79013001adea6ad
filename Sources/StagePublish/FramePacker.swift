import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem

/// Converts pieces of content to frames: each distinct content once, compressed in parallel, and stored in
/// input order.
struct FramePacker: ~Copyable {
    /// The number of a piece, until its frame is known.
    typealias Slot = Int

    private let level: Int
    private let width: Int
    private let previous: ContentIndex
    private var writer: BundleWriter
    /// The positions of the previous version's frames, by digest.
    private let known: [Digest: Int]
    private var frames: [ContentIndex.Frame] = []
    private var positions: [Digest: Int] = [:]
    private var slots: [Int?] = []
    private var pending: [(slot: Slot, bytes: [UInt8])] = []
    private var pendingSize = 0
    private var newBytes: Int64 = 0

    /// The number of bytes that are collected before they are compressed.
    private static let batchSize = 16 << 20

    /// Creates a packer that uses the frames of the previous version, except those in the bundles `damaged`.
    init(
        level: Int,
        width: Int,
        previous: ContentIndex,
        damaged: Set<Int>,
        writer: consuming BundleWriter
    ) {
        self.level = level
        self.width = width
        self.previous = previous
        self.writer = writer
        known = Dictionary(
            previous.frames.enumerated().filter { !damaged.contains($1.bundle) }.map {
                ($1.digest, $0)
            },
            uniquingKeysWith: { first, _ in first }
        )
    }

    /// Adds a frame of the previous version.
    mutating func add(previous position: Int) -> Slot {
        slots.append(use(previous.frames[position]))
        return slots.count - 1
    }

    /// Adds a piece.
    mutating func add(_ bytes: [UInt8]) async throws(FileError) -> Slot {
        slots.append(nil)
        pending.append((slots.count - 1, bytes))
        pendingSize += bytes.count
        if pendingSize >= Self.batchSize { try await flush() }
        return slots.count - 1
    }

    /// Creates frames of all added pieces.
    consuming func finish() async throws(FileError) -> Packed {
        try await flush()
        return Packed(
            frames: frames,
            positions: slots.map { $0 ?? 0 },
            newBytes: newBytes,
            newBundles: try writer.finish()
        )
    }

    /// The frames of all pieces.
    struct Packed: ~Copyable {
        /// The frames; new ones are in bundles after those of the previous version, in storage order.
        let frames: [ContentIndex.Frame]
        /// The frame position of each slot.
        let positions: [Int]
        /// The stored bytes of frames that no earlier version has.
        let newBytes: Int64
        /// The new bundles, under temporary names.
        let newBundles: TemporaryBundles
    }

    private mutating func use(_ frame: ContentIndex.Frame) -> Int {
        if let position = positions[frame.digest] { return position }
        frames.append(frame)
        positions[frame.digest] = frames.count - 1
        return frames.count - 1
    }

    private mutating func flush() async throws(FileError) {
        try FileError.checkCancellation()
        let digests = await mapInParallel(pending.map(\.bytes), width: width) { pieces in
            pieces.map { Digest(of: $0) }
        }
        var fresh: [(digest: Digest, bytes: [UInt8])] = []
        var claimed: Set<Digest> = []
        for (piece, digest) in zip(pending, digests)
        where positions[digest] == nil && known[digest] == nil && claimed.insert(digest).inserted {
            fresh.append((digest, piece.bytes))
        }
        let stored = await store(fresh.map(\.bytes))
        try FileError.checkCancellation()
        var made: [Digest: Stored] = [:]
        for (piece, form) in zip(fresh, stored) { made[piece.digest] = form }
        for (piece, digest) in zip(pending, digests) {
            if let position = positions[digest] {
                slots[piece.slot] = position
            } else if let position = known[digest] {
                slots[piece.slot] = use(previous.frames[position])
            } else if let form = made[digest] {
                let bytes = form.compressed ?? piece.bytes
                let location = try writer.append(bytes)
                newBytes += Int64(bytes.count)
                let compressed = form.digest.map {
                    ContentIndex.Compressed(digest: $0, length: bytes.count)
                }
                slots[piece.slot] = use(
                    ContentIndex.Frame(
                        digest: digest,
                        length: piece.bytes.count,
                        compressed: compressed,
                        bundle: previous.bundles.count + location.bundle,
                        offset: location.offset
                    )
                )
            }
        }
        pending = []
        pendingSize = 0
    }

    /// Compresses pieces; once the task is cancelled, leaves out those that remain.
    private func store(_ pieces: [[UInt8]]) async -> [Stored] {
        let (level, width, cancellation) = (level, width, Cancellation())
        return await withTaskCancellationHandler {
            await mapInParallel(pieces, width: width) { pieces in
                var compressor = PieceCompressor(level: level)
                return pieces.map {
                    cancellation.isRequested ? Stored() : compressor.store($0)
                }
            }
        } onCancel: {
            cancellation.request()
        }
    }

    /// The stored form of a piece.
    private struct Stored: Sendable {
        /// The compressed form with its digest; `nil` if compression saves too little.
        var compressed: [UInt8]?
        var digest: Digest?
    }

    /// Compresses pieces, and stores those uncompressed in which a fast level saves too little.
    ///
    /// Level 19 takes some 80 times as long as the fast level for images, sound and archives. Where the fast
    /// level saves nothing, level 19 saved 1 to 3 bytes in 1,000. Repeats of less than one byte in 64 are not
    /// detected, since libzstd's fast levels store such a block uncompressed. Fast levels also skip positions
    /// after a long search without matches, so distant matches are searched in addition: of two variants of
    /// an image in one frame, the second one is compressed.
    private struct PieceCompressor: ~Copyable {
        private var thorough: FrameCompressor
        private var quick: FrameCompressor?

        init(level: Int) {
            thorough = FrameCompressor(level: level)
            quick =
                level > CompressionTrial.level
                ? FrameCompressor(level: CompressionTrial.level, findsDistantRepeats: true) : nil
        }

        mutating func store(_ bytes: [UInt8]) -> Stored {
            if let look = quick?.compress(bytes.span), !Self.gains(look, over: bytes) {
                return Stored()
            }
            let frame = thorough.compress(bytes.span)
            guard Self.gains(frame, over: bytes) else { return Stored() }
            return Stored(compressed: frame, digest: Digest(of: frame))
        }

        private static func gains(_ frame: [UInt8], over bytes: [UInt8]) -> Bool {
            CompressionTrial.isGain(ByteCount(frame.count), of: ByteCount(bytes.count))
        }
    }
}
