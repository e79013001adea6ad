import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// Creates the patch between two versions whose bundles are in a store.
///
/// A patch has the content that only the newer version has, in parts. Each part is one Zstandard frame, compressed with
/// the most similar content of the older version as its prefix.
///
/// A part spans far more than the windows of a delta set, whose frames are compressed one by one, so that it finds more;
/// its decoder needs memory for both sides of one part.
struct PatchWriter: Sendable {
    private let old: ContentIndex
    /// The digest of the encoded older index.
    private let base: Digest
    private let version: StoredIndex
    /// The number of processors that compare the versions.
    private let width: Int
    /// The maximum number of bytes on either side of a part.
    private let limit: Int64
    /// The level of compression of all parts; `nil` to choose it for each.
    private let level: Int?

    /// The fraction of the smallest alternative's bytes that a patch must save, as a divisor: a client resumes a transfer of
    /// objects frame by frame, and needs less memory for it.
    private static let leastSaving = Int64(16)
    /// The share of a fast compression's size, as a divisor, that a slow one is assumed to reach at best.
    private static let bestGain = Int64(2)
    /// The levels of compression, from fast to slow; level 19 is the highest one without larger tables.
    ///
    /// The patch of a file of 150 MB with scattered changes has 169,953 bytes at level 1 after 0.4 s of processor time,
    /// 169,960 at level 12 after 6 s, and 169,954 at level 15 after 36 s. The patch of an executable of 186 MB is a quarter
    /// smaller at level 12 than at level 1.
    private static let (fastLevel, middleLevel, slowLevel) = (1, 12, 19)
    /// The fraction of the fast compression's size, as a divisor, that the middle level must save before a large part is
    /// compressed at the slow level.
    private static let leastGain = Int64(20)
    /// The maximum number of bytes of a part that is compressed at the slow level without trying the middle level first.
    private static let smallPart = 8 << 20

    /// The smallest frame for which similar runs are searched: fewer bytes are not worth the time.
    private static let leastSizeWithRuns = Int64(16 << 10)
    /// The share of the fast compression's size, as a divisor, that differences of similar runs have to save.
    ///
    /// The slow compression saves less with them: for pydantic-core a tenth, where the fast one saves four tenths.
    private static let leastGainOfRuns = Int64(4)

    /// Creates a writer for one older version; parts have at most `partSize` bytes on either side, and are compressed
    /// at `level`, 1 to 22; `nil` chooses level 12 or 19 for each by its size and the expected saving.
    init(
        from old: ContentIndex,
        base: Digest,
        to version: StoredIndex,
        width: Int,
        partSize: ByteCount,
        level: Int?
    ) {
        self.old = old
        self.base = base
        self.version = version
        self.width = width
        self.level = level
        let most = ManifestLimits.windowSize.rawValue
        limit = min(max(partSize.rawValue, Int64(IndexLimits.frameLength)), most)
    }

    /// Writes the patch, unless the update transfers about as little without it.
    ///
    /// - Parameters:
    ///   - other: The bytes that the content of the update transfers without a patch.
    ///   - store: The store with the bundles of both versions.
    /// - Returns: The outcome, and the patch's reference for the manifest if it was written.
    /// - Throws: ``PackagingError`` if the store cannot be read or written, or the task is cancelled.
    func write(
        insteadOf other: ByteCount,
        in store: Directory
    ) async throws(PackagingError) -> (BaseUpdate.Outcome, PackIndex.Patch?) {
        let bundles = try PackagingError.wrapping { () throws(FileError) in
            try store.directory(FilePath(StoreObjectKind.bundle.folder))
        }
        let content = PatchContent(of: version.index, notIn: old)
        guard let bundles, content.size > 0 else { return (.empty, nil) }
        let source = PatchContent(of: old, firstNotIn: version.index)
        let oldFrames = StoredFrames(index: old, bundles: bundles)
        let newFrames = StoredFrames(index: version.index, bundles: bundles)
        var choice: PrefixChoice?
        if source.changedSize > limit {
            let search = SampleSearch(old: oldFrames, new: newFrames, width: width)
            let frames = Set(content.pieces.compactMap { version.index.frame(of: $0)?.position })
            let matches = try await search.matches(
                of: frames.sorted(),
                in: ContentAddresses(of: old)
            )
            choice = PrefixChoice(from: old, to: version.index, source: source, matches: matches)
        }
        let plan = PatchPlan(of: content, after: source, limit: limit, by: choice)
        choice = nil
        let reader = PatchReader(
            content: content,
            source: source,
            new: newFrames,
            old: oldFrames
        )
        let result = try await withCancellableThread { cancellation throws(PackagingError) in
            try PackagingError.wrapping { () throws(FileError) in
                try write(plan, from: reader, insteadOf: other, in: store, unless: cancellation)
            }
        }
        if Task.isCancelled { throw .cancelled }
        return result
    }

    private func write(
        _ plan: PatchPlan,
        from reader: PatchReader,
        insteadOf other: ByteCount,
        in store: Directory,
        unless cancellation: Cancellation
    ) throws(FileError) -> (BaseUpdate.Outcome, PackIndex.Patch?) {
        let limit = other.rawValue - other.rawValue / Self.leastSaving
        guard let trial = try trial(of: plan, from: reader, unless: cancellation) else {
            return (.empty, nil)
        }
        // Returns the heap memory of the last part to the system.
        HeapMemory.release()
        let quick = trial.reduce(0) { $0 + $1.size }
        guard quick / Self.bestGain < limit else { return (.useless(ByteCount(quick)), nil) }
        var draft = try PatchDraft.make(in: reader.new.bundles)
        // The smallest size that the remaining parts can have, estimated from their fast compression.
        var promise = quick / Self.bestGain
        for (part, trial) in zip(plan.parts, trial) {
            guard var both = try reader.read(part, unless: cancellation) else {
                return (.empty, nil)
            }
            promise -= trial.size / Self.bestGain
            if trial.hasRuns {
                _ = both.subtractRuns(limit: Int(self.limit), unless: cancellation)
                if cancellation.isRequested { return (.empty, nil) }
            }
            let frame = compress(
                both,
                fastSize: trial.size,
                remaining: limit - draft.size - promise,
                unless: cancellation
            )
            if cancellation.isRequested { return (.empty, nil) }
            try draft.append(frame, of: part, runsLength: both.runsLength)
            guard draft.size + promise < limit else {
                return (.useless(ByteCount(draft.size + promise)), nil)
            }
        }
        let patch = try draft.publish(
            to: version.reference.contentDigest,
            from: base,
            in: store.makeDirectory(FilePath(StoreObjectKind.patch.folder))
        )
        return (patch.map { .made($0.size) } ?? .empty, patch)
    }

    /// The result of the fast compression of a part.
    private struct Trial {
        /// The size of the frame in bytes.
        var size: Int64
        /// Indicates whether the frame has differences of similar runs.
        var hasRuns = false
    }

    /// Compresses each part fast; `nil` if the store lacks some of the content, or if cancelled.
    private func trial(
        of plan: PatchPlan,
        from reader: PatchReader,
        unless cancellation: Cancellation
    ) throws(FileError) -> [Trial]? {
        var trials: [Trial] = []
        for part in plan.parts {
            guard var both = try reader.read(part, unless: cancellation) else { return nil }
            var trial = Trial(size: Int64(Self.compress(both, level: Self.fastLevel).count))
            if trial.size >= Self.leastSizeWithRuns, !cancellation.isRequested,
                both.subtractRuns(limit: Int(limit), unless: cancellation)
            {
                let size = Int64(Self.compress(both, level: Self.fastLevel).count)
                if size < trial.size - trial.size / Self.leastGainOfRuns {
                    trial = Trial(size: size, hasRuns: true)
                }
            }
            if cancellation.isRequested { return nil }
            trials.append(trial)
        }
        return trials
    }
}

extension PatchWriter {
    /// Compresses a part at the level of the writer, or at level 12 or 19 if it has none.
    ///
    /// - Parameters:
    ///   - part: The old and the new content of the part.
    ///   - fastSize: The bytes that the fast compression leaves.
    ///   - remaining: The number of bytes below which the patch can still be kept.
    ///   - cancellation: Ends the compression after the current step.
    /// - Returns: The frame.
    private func compress(
        _ part: PartContent,
        fastSize: Int64,
        remaining: Int64,
        unless cancellation: Cancellation
    ) -> [UInt8] {
        if let level { return Self.compress(part, level: level) }
        guard part.content.count - part.runsLength > Self.smallPart else {
            return Self.compress(part, level: Self.slowLevel)
        }
        let frame = Self.compress(part, level: Self.middleLevel)
        let size = Int64(frame.count)
        let isEnough = fastSize - size <= fastSize / Self.leastGain && size < remaining
        if isEnough || cancellation.isRequested { return frame }
        let smaller = Self.compress(part, level: Self.slowLevel)
        return smaller.count < frame.count ? smaller : frame
    }

    private static func compress(
        _ part: PartContent,
        level: Int
    ) -> [UInt8] {
        var compressor = FrameCompressor(level: level, findsDistantRepeats: true)
        return compressor.compress(part.content.span, after: part.prefix.span)
    }
}

/// Reads the parts of a patch from the bundles of both versions, one at a time.
private struct PatchReader: Sendable {
    let content: PatchContent
    let source: PatchContent
    let new: StoredFrames
    let old: StoredFrames

    /// Returns both sides of a part; `nil` if the store lacks some of it, or if cancelled.
    func read(
        _ part: PatchPlan.Part,
        unless cancellation: Cancellation
    ) throws(FileError) -> PartContent? {
        var decompressor = FrameDecompressor()
        let prefix = try old.bytes(
            of: source,
            at: part.prefix,
            decompressor: &decompressor
        ) { cancellation.isRequested }
        guard let prefix else { return nil }
        let content = try new.bytes(
            of: content,
            at: [part.range],
            decompressor: &decompressor
        ) { cancellation.isRequested }
        return content.map { PartContent(prefix: prefix, content: $0) }
    }
}

/// The old and the new content of a part, in memory.
private struct PartContent {
    let prefix: [UInt8]
    /// The encoded runs and the content, to which the frame decompresses.
    var content: [UInt8]
    /// The number of bytes of the encoded runs.
    var runsLength = 0

    /// Finds runs that resemble the prefix, replaces their bytes by the differences, and puts the encoded runs before the content.
    ///
    /// - Parameters:
    ///   - limit: The maximum number of bytes that the frame may decompress to.
    ///   - cancellation: Ends the search.
    /// - Returns: `false` if nothing was changed: there are no runs, or too many, or the search was cancelled.
    mutating func subtractRuns(limit: Int, unless cancellation: Cancellation) -> Bool {
        let most = PatchTable.Part.maximumRunBytes(forContentOf: content.count, limit: limit)
        let search = SimilarRunSearch(mostBytes: most)
        guard let runs = search.runs(of: content, in: prefix, unless: cancellation) else {
            return false
        }
        let encoded = runs.encoded()
        guard !encoded.isEmpty, encoded.count <= most else { return false }
        var changed: [UInt8] = []
        changed.reserveCapacity(encoded.count + content.count)
        changed += encoded
        changed += content
        for run in runs {
            let shift = run.prefixOffset - run.content.lowerBound
            for position in run.content {
                changed[encoded.count + position] &-= prefix[position + shift]
            }
        }
        (content, runsLength) = (changed, encoded.count)
        return true
    }
}

/// The frames of a patch in a file without a name, until its table is known.
private struct PatchDraft: ~Copyable {
    private let frames: File
    private var table = PatchTable()
    private var frameSize = Int64(0)

    /// Creates an empty draft in the directory of the bundles; the directory of patches is created only for a patch that is kept.
    static func make(in bundles: Directory) throws(FileError) -> PatchDraft {
        let name = StoreObjectKind.bundle.makeName()
        let frames = try bundles.file(creating: FilePath(name), for: nil)
        // The file exists until it is closed.
        try bundles.remove(name)
        return PatchDraft(frames: frames)
    }

    private init(frames: consuming File) { self.frames = frames }

    /// The size of the patch so far.
    var size: Int64 { Int64(table.encoded().count) + frameSize }

    mutating func append(
        _ frame: [UInt8],
        of part: PatchPlan.Part,
        runsLength: Int
    ) throws(FileError) {
        try frames.write(frame.span, at: frameSize)
        frameSize += Int64(frame.count)
        table.parts.append(
            PatchTable.Part(
                contentLength: part.range.count,
                runsLength: runsLength,
                prefix: part.prefix,
                frameLength: frame.count
            )
        )
    }

    /// Writes the patch under its name, durably, unless it is there; `nil` for one that no client accepts.
    consuming func publish(
        to new: Digest,
        from old: Digest,
        in directory: Directory
    ) throws(FileError) -> PackIndex.Patch? {
        let encoded = table.encoded()
        let size = ByteCount(Int64(encoded.count) + frameSize)
        guard encoded.count <= ManifestLimits.deltaTableSize.rawValue,
            size <= ManifestLimits.patchSize
        else { return nil }
        let digest = try StoreObjects(directory: directory).create(.patch) { digest in
            FilePath(StoredPatch.path(digest, to: new, from: old)).lastComponent
        } write: { (file) throws(FileError) in
            try write(encoded, to: file)
        }
        return StoredPatch.reference(to: table, size: size, digest: digest, to: new, from: old)
    }

    /// Writes the table and the frames, and returns the digest of both.
    private borrowing func write(
        _ table: [UInt8],
        to file: borrowing File
    ) throws(FileError) -> Digest {
        var hasher = SHA256Hasher()
        try file.write(table.span, at: 0)
        hasher.update(table.span)
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        var offset = Int64(0)
        while offset < frameSize {
            let count = try frames.read(into: &buffer, at: offset)
            guard count > 0 else {
                throw FileError("read", path: frames.path, errno: .ioError)
            }
            let bytes = buffer.span.extracting(0..<count)
            try file.write(bytes, at: Int64(table.count) + offset)
            hasher.update(bytes)
            offset += Int64(count)
        }
        return hasher.finish()
    }
}

extension ContentIndex {
    /// Returns the frame of the version that contains a piece, and the piece's offset in it.
    func frame(of piece: PatchContent.Piece) -> (position: Int, offset: Int)? {
        if let frame = piece.frame { return (frame, 0) }
        guard case .part(let frame, let start)? = entries.file(at: piece.entry)?.content else {
            return nil
        }
        return (frame, start)
    }
}
