import StageContainer
import StageModel
import StageSystem
import SystemPackage

extension Container {
    /// Removes the records of applications whose registration was removed, and their packs.
    ///
    /// - Returns: The removed applications and packs.
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
        guard !forgotten.isEmpty else { return ([], []) }
        do throws(ContainerError) {
            return (forgotten, try removeObsoletePacks(includingPinned: true))
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Returns whether the container has no manifests, no history and no packs.
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
