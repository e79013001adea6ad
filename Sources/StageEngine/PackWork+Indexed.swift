import StageContainer
import StageModel
import SystemPackage

extension PackWork {
    /// Stages a pack from its index and bundles.
    func stage(
        _ pack: Pack,
        _ index: PackIndex,
        _ lock: PackLock,
        _ report: @escaping @Sendable (StagingEvent) -> Void
    ) async throws(StageError) -> StagingOutcome {
        let container = container
        let area = try await StageError.blocking { () throws(ContainerError) in
            try container.makeStagingArea(lock, continuing: index.contentDigest)
        }
        let work = IndexedWork(
            stager: stager,
            manifest: manifest,
            container: container,
            pack: pack,
            reference: index,
            report: report
        )
        let figures: StagingFigures
        do throws(StageError) {
            figures = try await work.fill(area)
        } catch {
            // What has come stays for the next run, unless it is of no use to any.
            switch error {
            case .index, .incompleteContent: await discard(area)
            default: break
            }
            throw error
        }
        report(.publishing)
        let record = StagedPack(
            pack,
            of: manifest.manifest,
            source: figures.source ?? index.url,
            stagedAt: stager.options.now()
        )
        try await publish(UnpackedPack(area: area, record: record))
        await tidy(nil, lock)
        return .staged(figures)
    }
}
