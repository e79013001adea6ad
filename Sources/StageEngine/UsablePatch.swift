import Logging
import StageContainer
import StageFrame
import StageIndex
import StageModel
import StageSystem

/// A patch that can be decoded on this machine.
struct UsablePatch: Sendable {
    let reference: PackIndex.Patch
    /// The pieces that the patch contains.
    let content: PatchContent
    /// The pieces of the staged generation that it can refer to.
    let source: PatchContent

    /// The memory that a decoder needs beside the pieces of both versions.
    private static let overhead = ByteCount.mebibytes(32)

    /// The memory for decoding the largest part, in bytes.
    var memory: ByteCount {
        let runs = content.size / Int64(PatchTable.Part.leastContentPerRunByte)
        return Self.memory(
            window: min(reference.windowSize.rawValue, content.size + runs),
            prefix: min(reference.prefixSize, ByteCount(source.size))
        )
    }

    /// Returns the memory for decoding the largest part that a patch may have by the manifest, in bytes.
    static func maximumMemory(of reference: PackIndex.Patch) -> ByteCount {
        memory(window: reference.windowSize.rawValue, prefix: reference.prefixSize)
    }

    private static func memory(window: Int64, prefix: ByteCount) -> ByteCount {
        // The encoded runs, at most a sixteenth of the content, are kept beside the window, which begins with them.
        let runs = window / Int64(PatchTable.Part.leastContentPerRunByte)
        return ByteCount(StreamCompressor.window(for: window)) + ByteCount(runs) + prefix + overhead
    }

    /// Returns the memory for decoding a part, in bytes.
    ///
    /// A frame may have any window up to that of its decompressor, which is a power of two.
    static func memory(for part: PatchTable.Part) -> ByteCount {
        let window = StreamCompressor.window(for: Int64(part.decompressedLength))
        // The encoded runs are kept beside the window, which begins with them.
        return ByteCount(window + part.runsLength) + ByteCount(part.prefixLength) + overhead
    }

    /// Returns whether the parts of a table produce all of ``content`` from pieces of ``source``, and need no more memory
    /// than the manifest declares.
    func accepts(_ table: PatchTable) -> Bool {
        table.windowSize <= reference.windowSize && table.prefixSize <= reference.prefixSize
            && (try? table.check(content: content, source: source)) != nil
    }
}

extension IndexFetch {
    /// Returns the patch from a staged generation if it can be decoded.
    ///
    /// Logs the reason if it cannot; the update then transfers more bytes.
    ///
    /// - Parameters:
    ///   - base: The staged generation.
    ///   - index: The newer index.
    /// - Returns: The patch; `nil` if the manifest names none from this generation, or there is not enough memory.
    func usablePatch(
        from base: IndexSource.Base?,
        to index: ContentIndex
    ) async -> UsablePatch? {
        guard let base, let patch = reference.delta(from: base.contentMap.indexDigest)?.patch else {
            return nil
        }
        let old = base.contentMap.index
        let found = await withBlockingThread { () -> UsablePatch in
            // Returns the heap memory of finding the pieces to the system.
            defer { HeapMemory.release() }
            return UsablePatch(
                reference: patch,
                content: PatchContent(of: index, notIn: old),
                source: PatchContent(of: old, firstNotIn: index)
            )
        }
        let available = ByteCount(AvailableMemory.byteCount())
        guard found.memory <= available else {
            skip(
                patch,
                because: "it takes \(found.memory) of memory, and \(available) is available"
            )
            return nil
        }
        return found
    }

    private func skip(_ patch: PackIndex.Patch, because reason: String) {
        fetching.stager.logger.notice(
            "a patch is not used",
            metadata: [
                "pack.id": "\(fetching.pack.id)", "url": "\(patch.url.forDisplay())",
                "reason": "\(reason)",
            ]
        )
    }
}

extension ContentIndex {
    /// Returns the disk space of the files of some entries, in whole blocks, and their inodes.
    func usageOnDisk(
        where isIncluded: (_ position: Int, _ file: File) -> Bool
    ) -> FileSystemUsage {
        var size = Int64(0)
        var count = 0
        for (position, file) in files where isIncluded(position, file) {
            size += file.size
            count += 1
        }
        return FileSystemUsage(
            bytes: StoredGeneration.size(ByteCount(size), fileCount: count),
            inodes: count
        )
    }
}
