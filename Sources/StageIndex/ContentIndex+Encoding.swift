import StageModel

extension ContentIndex {
    /// The first bytes of an index: a name, bytes that text-mode transfers corrupt, and the format version.
    static let magic: [UInt8] = Array("SPIX".utf8) + [0x0D, 0x0A, 0x1A, 0x02]

    /// The digest of empty content, which is not encoded.
    static let emptyDigest = Digest(
        bytes: [
            0xE3, 0xB0, 0xC4, 0x42, 0x98, 0xFC, 0x1C, 0x14, 0x9A, 0xFB, 0xF4, 0xC8, 0x99, 0x6F,
            0xB9,
            0x24, 0x27, 0xAE, 0x41, 0xE4, 0x64, 0x9B, 0x93, 0x4C, 0xA4, 0x95, 0x99, 0x1B, 0x78,
            0x52,
            0xB8, 0x55,
        ]
    )

    /// Returns the encoded index; equal indexes have equal bytes.
    package func encoded() -> [UInt8] { encoded(with: RestoredDigests()) }

    /// Returns the encoded index, with digests in place of omitted ones.
    func encoded(with restored: RestoredDigests) -> [UInt8] {
        var bytes = Self.magic
        // Enough for most indexes, which are then not copied as they grow. Reserved memory that is not written takes none.
        bytes.reserveCapacity(
            bundles.count * 42 + frames.count * 84 + entries.count * 56 + entries.pathByteCount
        )
        bytes.append(number: bundles.count)
        bytes.append(number: frames.count)
        bytes.append(number: entries.count)
        for bundle in bundles {
            bytes += bundle.digest.bytes
            bytes.append(number: UInt64(bundle.size))
        }
        encodeFrames(with: restored, to: &bytes)
        encodePaths(to: &bytes)
        encodeSizes(to: &bytes)
        encodeContent(to: &bytes)
        encodeDigests(with: restored, where: { !$0.hasDigestOfFrame }, to: &bytes)
        encodeTargets(to: &bytes)
        return bytes
    }

    /// Returns the file table: the columns of ``encoded()`` that follow from the files alone, with the digest
    /// of every file that is not empty.
    ///
    /// It serves as the prefix from which an index is restored after its archive was unpacked: frames and
    /// bundles are irrelevant, so an index of the unpacked files without frames has the same table.
    package func encodedFileTable() -> [UInt8] {
        var bytes: [UInt8] = []
        encodePaths(to: &bytes)
        encodeSizes(to: &bytes)
        encodeDigests(with: RestoredDigests(), where: { $0.size > 0 }, to: &bytes)
        encodeTargets(to: &bytes)
        return bytes
    }

    private func encodeFrames(with restored: RestoredDigests, to bytes: inout [UInt8]) {
        for frame in frames { bytes.append(number: frame.length) }
        for frame in frames { bytes.append(number: frame.compressed?.length ?? 0) }
        var expected = ExpectedPosition()
        for frame in frames {
            bytes.append(difference: Int64(frame.bundle - expected.container))
            expected.enter(frame.bundle)
            bytes.append(difference: frame.offset - expected.offset)
            expected.offset = frame.range.upperBound
        }
        for (position, frame) in frames.enumerated() {
            bytes += restored.digest(of: frame, at: position).bytes
        }
        for frame in frames {
            if let compressed = frame.compressed { bytes += compressed.digest.bytes }
        }
    }

    private func encodePaths(to bytes: inout [UInt8]) {
        var previous: ArraySlice<UInt8> = []
        var sharedLengths: [UInt16] = []
        sharedLengths.reserveCapacity(entries.count)
        for position in entries.indices {
            let path = entries.pathBytes(at: position)
            let shared = zip(previous, path).prefix { $0 == $1 }.count
            bytes.append(number: shared)
            sharedLengths.append(UInt16(shared))
            previous = path
        }
        for (position, shared) in sharedLengths.enumerated() {
            bytes.append(number: entries.pathBytes(at: position).count - Int(shared))
        }
        for (position, shared) in sharedLengths.enumerated() {
            bytes += entries.pathBytes(at: position).dropFirst(Int(shared))
        }
        for position in entries.indices { bytes.append(entries.kind(at: position).code) }
    }

    private var files: some Sequence<File> {
        entries.indices.lazy.compactMap { entries.file(at: $0) }
    }

    private func encodeSizes(to bytes: inout [UInt8]) {
        for file in files { bytes.append(number: UInt64(file.size)) }
    }

    private func encodeContent(to bytes: inout [UInt8]) {
        var expected = ExpectedPosition()
        for file in files where file.size > 0 {
            switch file.content {
            case .part(let frame, let offset):
                bytes.append(number: 0)
                bytes.append(difference: Int64(frame - expected.container))
                expected.enter(frame)
                bytes.append(difference: Int64(offset) - expected.offset)
                expected.offset = Int64(offset) + file.size
            case .frames(let list):
                bytes.append(number: list.count)
                for frame in list {
                    bytes.append(difference: Int64(frame - expected.container - 1))
                    expected = ExpectedPosition(container: frame)
                }
            }
        }
    }

    private func encodeDigests(
        with restored: RestoredDigests,
        where isIncluded: (File) -> Bool,
        to bytes: inout [UInt8]
    ) {
        for file in files where isIncluded(file) { bytes += restored.digest(of: file).bytes }
    }

    private func encodeTargets(to bytes: inout [UInt8]) {
        let targets = entries.indices.lazy.compactMap { position -> String? in
            if case .link(let target) = entries.kind(at: position) { target.text } else { nil }
        }
        for target in targets {
            bytes.append(number: target.utf8.count)
            bytes += target.utf8
        }
    }
}

/// The position where the next part is expected: a frame in its bundle, or a file in its frame, at the end of
/// the part before.
struct ExpectedPosition {
    /// The position of the bundle or frame in the index.
    var container = 0
    /// The offset in bytes.
    var offset: Int64 = 0

    /// Moves to the container of the next part, to its start if it is another one.
    mutating func enter(_ container: Int) {
        if container != self.container { offset = 0 }
        self.container = container
    }
}

extension ContentIndex.Kind {
    /// The encoded kind.
    fileprivate var code: UInt8 {
        switch self {
        case .file(let file): file.isExecutable ? 1 : 0
        case .directory: 2
        case .link: 3
        }
    }
}

extension ContentIndex.File {
    /// Indicates whether the index contains the file's digest elsewhere: the digest of empty content, or of
    /// the file's only frame.
    var hasDigestOfFrame: Bool {
        if size == 0 { return true }
        if case .frames(let list) = content { return list.count == 1 }
        return false
    }
}
