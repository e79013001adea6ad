import StageContainer
import StageModel
import StageSystem
import SystemPackage

extension Container {
    /// Removes the packs that no manifest of the container's applications offers any more.
    ///
    /// A pack that is being staged is left alone, and so is everything while a manifest cannot be read.
    /// So are packs that are pinned, unless their application is gone (`includingPinned`).
    func removeObsoletePacks(
        includingPinned: Bool = false
    ) async throws(CommandFailure) -> [PackID] {
        do throws(ContainerError) {
            var offered: Set<PackID> = []
            for application in try reader.applications() {
                guard let record = try storedManifest(for: application),
                    // Said where it is asked for; here it means that nothing is known.
                    let manifest = try? Manifest(json: Array(record.text.utf8))
                else { return [] }
                offered.formUnion(manifest.packs.map(\.id))
            }
            var removed: [PackID] = []
            for id in try reader.stagedPacks() where !offered.contains(id) {
                guard let lock = try attemptLock(id) else { continue }
                if !includingPinned, try reader.pin(of: id) != nil { continue }
                _ = try remove(lock)
                removed.append(id)
            }
            return removed
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Forgets the applications that were staged through a registration which is there no more, and
    /// removes their packs.
    ///
    /// - Returns: the applications that are forgotten.
    func forgetUnregistered(
        _ registered: Set<ApplicationID>
    ) async throws(CommandFailure) -> (forgotten: [ApplicationID], removed: [PackID]) {
        var forgotten: [ApplicationID] = []
        do throws(ContainerError) {
            for id in try reader.applicationsWithHistory() where !registered.contains(id) {
                guard try reader.history(of: id)?.isRegistered ?? false else { continue }
                try forget(id)
                forgotten.append(id)
            }
        } catch {
            throw CommandFailure(error)
        }
        return (
            forgotten, forgotten.isEmpty ? [] : try await removeObsoletePacks(includingPinned: true)
        )
    }

    /// Whether nothing is in the container that anybody could want.
    func isDeserted() throws(CommandFailure) -> Bool {
        do throws(ContainerError) {
            guard try reader.applications().isEmpty else { return false }
            guard try reader.applicationsWithHistory().isEmpty else { return false }
            return try reader.packsWithGenerations().isEmpty
        } catch {
            throw CommandFailure(error)
        }
    }
}
