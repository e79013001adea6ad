import StageFrame
import StageIndex
import StageModel
import StageSystem

/// Searches an older version for the samples of a newer version's frames.
///
/// Reads each of these frames and all frames of the older version once. Skips frames that the store lacks.
struct SampleSearch: Sendable {
    let old: StoredFrames
    let new: StoredFrames
    /// The number of processors to use.
    let width: Int

    /// The number of frames that a processor reads in one batch.
    private static let batch = 64

    /// Returns the common samples of new frames and the older version's files; the result does not depend on
    /// the width.
    func matches(
        of frames: [Int],
        in addresses: ContentAddresses
    ) async throws(PackagingError) -> SampleMatches {
        let sampler = ContentSampler(
            byteCount: frames.reduce(0) { $0 + Int64(new.index.frames[$1].length) }
        )
        var samples: [Int: [ContentSampler.Sample]] = [:]
        try await forEach(of: frames, in: new) {
            sampler.samples(of: $1.span)
        } add: {
            samples[$0] = $1
        }
        var matches = SampleMatches(sampler: sampler, samples: samples)
        samples = [:]
        // The extents of a frame are consecutive.
        let extents = addresses.extents
        var runs: [Int: Range<Int>] = [:]
        for (position, extent) in extents.enumerated() {
            runs[extent.frame] = (runs[extent.frame]?.lowerBound ?? position)..<position + 1
        }
        let (table, owners) = (matches.table, runs)
        try await forEach(of: runs.keys.sorted(), in: old) { frame, content in
            let own = extents[owners[frame] ?? 0..<0]
            return table.locations(of: sampler.samples(of: content.span)) { offset in
                own.address(ofByteAt: offset)
            }
        } add: {
            matches.add($1)
        }
        return matches
    }

    /// Calls `add` with the results of `body` for frames, in order.
    private func forEach<Value: Sendable>(
        of frames: [Int],
        in version: StoredFrames,
        _ body: @escaping @Sendable (_ frame: Int, _ content: [UInt8]) -> Value,
        add: (_ frame: Int, _ value: Value) -> Void
    ) async throws(PackagingError) {
        var left = frames[...]
        while !left.isEmpty {
            if Task.isCancelled { throw .cancelled }
            let batch = Array(left.prefix(width * Self.batch))
            left = left.dropFirst(batch.count)
            let results = await values(of: batch, in: version, body)
            do throws(FileError) {
                var parts: [[Value?]] = []
                for result in results { parts.append(try result.get()) }
                for (position, frame) in batch.enumerated() {
                    guard let value = parts[position % width][position / width] else { continue }
                    add(frame, value)
                }
            } catch {
                throw .file(error)
            }
        }
    }

    /// Returns the results of `body` for frames; of `width` processors, each takes every `width`th frame.
    private func values<Value: Sendable>(
        of frames: [Int],
        in version: StoredFrames,
        _ body: @escaping @Sendable (_ frame: Int, _ content: [UInt8]) -> Value
    ) async -> [Result<[Value?], FileError>] {
        await withTaskGroup(of: (Int, Result<[Value?], FileError>).self) { tasks in
            for part in 0..<width {
                let own = stride(from: part, to: frames.count, by: width).map { frames[$0] }
                tasks.addTask {
                    let result = await withBlockingThread { () -> Result<[Value?], FileError> in
                        var decompressor = FrameDecompressor()
                        do throws(FileError) {
                            var values: [Value?] = []
                            for frame in own {
                                let content = try version.content(
                                    of: frame,
                                    decompressor: &decompressor
                                )
                                values.append(content.map { body(frame, $0) })
                            }
                            return .success(values)
                        } catch {
                            return .failure(error)
                        }
                    }
                    return (part, result)
                }
            }
            var results = [Result<[Value?], FileError>](repeating: .success([]), count: width)
            for await (part, result) in tasks { results[part] = result }
            return results
        }
    }
}

extension ArraySlice<ContentAddresses.Extent> {
    /// Returns the address of a byte of these extents' common frame; `nil` if no file contains it.
    fileprivate func address(ofByteAt offset: Int) -> Int64? {
        let next = partitioningIndex { $0.offset > offset }
        guard next > startIndex else { return nil }
        let extent = self[next - 1]
        let distance = offset - extent.offset
        return distance < extent.length ? extent.address + Int64(distance) : nil
    }
}
