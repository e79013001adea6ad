import StageContainer
import StageIndex
import StageModel
import StageSystem

extension IndexFetch {
    /// A choice among the ways to what is missing, and what was fetched to make it.
    struct Comparison: Sendable {
        var choice: TransferChoice
        var deltas: IndexSource.Deltas
        /// The bytes of the table of a delta set.
        var received: ByteCount
    }

    /// Compares the bytes of what is missing in objects and in the archive.
    ///
    /// The table of a delta set is asked for where the set alone makes the difference.
    ///
    /// - Parameters:
    ///   - missing: The missing frames, by their positions in the index.
    ///   - index: The index.
    ///   - base: The staged generation.
    ///   - archive: The bytes of the archive that are not here; `nil` without one, or without room for it.
    /// - Returns: The choice.
    /// - Throws: ``StageError`` if the task is cancelled.
    func choose(
        for missing: [Int],
        of index: ContentIndex,
        _ base: IndexSource.Base?,
        archive: ByteCount?
    ) async throws(StageError) -> Comparison {
        let objects = ByteCount(RangePlan(missing, of: index).byteCount)
        let choice = TransferChoice(objects: objects, archive: archive)
        guard let archive, choice.way == .archive, let base,
            let set = reference.deltas.first(where: { $0.base == base.held.indexDigest })?.frames,
            set.size < archive, set.tableSize.rawValue <= archive.rawValue / 16
        else { return Comparison(choice: choice, deltas: .unknown, received: .zero) }
        let deltas = try await deltas(for: missing, of: index, base)
        guard let source = deltas.source else {
            return Comparison(choice: choice, deltas: .known(nil), received: deltas.received)
        }
        let bytes = source.byteCount(for: missing, of: index)
        return Comparison(
            choice: TransferChoice(objects: bytes, archive: archive),
            deltas: .known(source),
            received: deltas.received
        )
    }

    /// Finds out what staging the pack transfers: fetches the index, and the table of a delta set where that is
    /// decisive, and writes nothing.
    ///
    /// - Parameters:
    ///   - base: The staged generation; `nil` where nothing of the pack is here.
    ///   - archive: The bytes of the archive that are not here; `nil` without one, or without room for it.
    /// - Returns: The choice with the exact bytes, and the bytes of all requests that a run makes.
    /// - Throws: ``StageError`` if the index cannot be fetched.
    func estimate(
        from base: IndexSource.Base?,
        archive: ByteCount?
    ) async throws(StageError) -> (choice: TransferChoice, byteCount: ByteCount) {
        var figures = StagingFigures(transferred: .zero, reused: .zero, source: nil)
        let index = try await index(in: nil, base, &figures).content
        let missing = index.framesMissing(from: base?.held)
        var found = try await choose(for: missing, of: index, base, archive: archive)
        guard found.choice.way == .objects else {
            return (found.choice, figures.transferred + found.received + found.choice.byteCount)
        }
        if case .unknown = found.deltas, !missing.isEmpty {
            let deltas = try await deltas(for: missing, of: index, base)
            found.deltas = .known(deltas.source)
            found.received = deltas.received
        }
        if case .known(let source?) = found.deltas {
            found.choice.objects = source.byteCount(for: missing, of: index)
        }
        // The table of the set is a part of it.
        found.choice.objects = found.choice.objects + found.received
        return (found.choice, figures.transferred + found.choice.objects)
    }
}

extension DeltaSource {
    /// The bytes that are asked for to make frames of the newer index: those of the delta set, and those of bundles for
    /// frames that the set does not make.
    func byteCount(for frames: [Int], of index: ContentIndex) -> ByteCount {
        let made = Set(set.frames.lazy.map(\.position))
        let rest = RangePlan(frames.filter { !made.contains($0) }, of: index)
        return ByteCount(plan(for: frames).byteCount + rest.byteCount)
    }
}

extension ContentIndex {
    /// The frames that a staged generation does not have, by their positions, in their order.
    fileprivate func framesMissing(from held: HeldContent?) -> [Int] {
        var wanted: Set<Int> = []
        for (_, file) in files where file.size > 0 && held?.path(of: file) == nil {
            switch file.content {
            case .part(let frame, _): wanted.insert(frame)
            case .frames(let list): wanted.formUnion(list)
            }
        }
        return wanted.filter { held?.place(of: frames[$0]) == nil }.sorted()
    }
}
