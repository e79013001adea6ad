import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// The frames of a version whose bundles are in a publisher's store.
struct StoredFrames: Sendable {
    let index: ContentIndex
    /// The directory of the bundles.
    let bundles: Directory
    /// The temporary files of the last bundles, if these are not published yet.
    var temporaryNames: [FilePath.Component] = []

    /// Returns a frame's stored bytes; `nil` if the store lacks its bundle or the bundle is too short.
    func stored(_ position: Int) throws(FileError) -> [UInt8]? {
        let frame = index.frames[position]
        guard let file = try bundles.file(reading: name(of: frame.bundle)) else { return nil }
        var bytes = [UInt8](repeating: 0, count: frame.storedLength)
        return try file.read(into: &bytes, at: frame.offset) == bytes.count ? bytes : nil
    }

    /// Returns whether the store has a bundle, which is the case if its size is right.
    func hasBundle(_ bundle: Int) throws(FileError) -> Bool {
        try bundles.status(name(of: bundle))?.size == index.bundles[bundle].size
    }

    /// Returns a frame's stored bytes; `nil` if the store lacks its bundle or the bytes are damaged.
    func intact(_ position: Int) throws(FileError) -> [UInt8]? {
        guard let bytes = try stored(position),
            Digest(of: bytes) == index.frames[position].storedDigest
        else { return nil }
        return bytes
    }

    private func name(of bundle: Int) -> FilePath {
        let temporary = bundle - (index.bundles.count - temporaryNames.count)
        return temporary < 0
            ? FilePath("\(index.bundles[bundle].digest)") : FilePath(temporaryNames[temporary])
    }

    /// Returns the content of a frame; `nil` if the store lacks its bundle or the bytes are damaged.
    func content(
        of position: Int,
        decompressor: inout FrameDecompressor
    ) throws(FileError) -> [UInt8]? {
        let frame = index.frames[position]
        guard var bytes = try stored(position) else { return nil }
        if frame.compressed != nil {
            // Damaged bytes count as missing.
            guard let content = try? decompressor.decompress(bytes.span, to: frame.length) else {
                return nil
            }
            bytes = content
        }
        return Digest(of: bytes) == frame.digest ? bytes : nil
    }

    /// Returns the bytes at ranges of a version's pieces, one after the other; `nil` if the store lacks some of
    /// them, or if stopped early.
    func bytes(
        of content: PatchContent,
        at ranges: [Range<Int64>],
        decompressor: inout FrameDecompressor,
        unless isStopped: () -> Bool
    ) throws(FileError) -> [UInt8]? {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(ranges.reduce(0) { $0 + $1.count })
        var recent = RecentFrames()
        var isMissing = false
        for range in ranges {
            try content.forEachPiece(in: range) { (piece, part) throws(FileError) in
                guard !isMissing, !isStopped(), let found = index.frame(of: piece),
                    let content = try recent.content(
                        of: found.position,
                        in: self,
                        decompressor: &decompressor
                    )
                else {
                    isMissing = true
                    return
                }
                bytes += content[found.offset + part.lowerBound..<found.offset + part.upperBound]
            }
        }
        return isMissing ? nil : bytes
    }

    /// Returns the bytes of a window; `nil` if the store lacks some of them.
    func bytes(
        of window: DeltaSet.Window,
        decompressor: inout FrameDecompressor
    ) throws(FileError) -> [UInt8]? {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(window.length)
        var recent = RecentFrames()
        for segment in window.segments {
            guard let file = index.entries.file(at: segment.entry) else { return nil }
            let range = segment.offset..<segment.offset + Int64(segment.length)
            let (list, first) =
                switch file.content {
                case .part(let frame, let start): ([frame], -Int64(start))
                case .frames(let list): (list, Int64(0))
                }
            var offset = first
            for frame in list where offset < range.upperBound {
                let span = offset..<offset + Int64(index.frames[frame].length)
                offset = span.upperBound
                let common = span.clamped(to: range)
                guard !common.isEmpty else { continue }
                guard
                    let content = try recent.content(
                        of: frame,
                        in: self,
                        decompressor: &decompressor
                    )
                else {
                    return nil
                }
                let start = span.lowerBound
                let (from, to) = (common.lowerBound - start, common.upperBound - start)
                bytes += content[Int(from)..<Int(to)]
            }
        }
        return bytes
    }
}

/// A cache of the last frames: neighbouring parts of a window are often in the same frames.
private struct RecentFrames {
    private var frames: [(position: Int, content: [UInt8])] = []
    /// The maximum number of cached frames.
    private static let limit = 8

    /// Returns the content of a frame; `nil` if the store lacks it.
    mutating func content(
        of position: Int,
        in version: StoredFrames,
        decompressor: inout FrameDecompressor
    ) throws(FileError) -> [UInt8]? {
        if let known = frames.first(where: { $0.position == position }) { return known.content }
        guard let content = try version.content(of: position, decompressor: &decompressor) else {
            return nil
        }
        if frames.count == Self.limit { frames.removeFirst() }
        frames.append((position, content))
        return content
    }
}
