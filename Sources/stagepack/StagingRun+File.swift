import StageContainer
import StageEngine
import StageModel
import StageTransfer
import SystemPackage

extension StagingRun {
    /// Fetches one file of an indexed pack, and returns where it is.
    func fetchFile(
        _ path: ContentPath,
        of id: PackID
    ) async throws(CommandFailure) -> FilePath {
        let reader = try session.reader()
        let options = try session.stagerOptions()
        let sources = try session.sources(reader)
        return try await withStager(options, logger: Log.logger) {
            (stager) async throws(CommandFailure) in
            for source in sources {
                let (manifest, _) = try await self.manifest(source, reader, stager)
                guard manifest.manifest[id] != nil else { continue }
                let container = try openContainer(
                    try session.container(for: manifest.manifest),
                    storing: manifest
                )
                do throws(StageError) {
                    return try await stager.fetchFile(
                        path,
                        of: id,
                        from: manifest,
                        in: container,
                        applicationVersion: session.applicationVersion
                    )
                } catch {
                    throw CommandFailure(error, pack: id)
                }
            }
            throw CommandFailure(.unknownPack(id))
        }
    }
}
