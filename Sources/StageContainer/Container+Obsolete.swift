public import StageModel

extension Container {
    /// Removes the packs that no manifest of the container's applications offers.
    ///
    /// Removes nothing if a manifest cannot be read. Skips pinned packs, packs that are being staged, and those of
    /// ``ContainerReader/keptPacks(ignoring:)``.
    ///
    /// - Parameter reportFailure: Called for each pack that cannot be removed, or only in part; the others are
    ///   removed.
    /// - Returns: The packs that were removed without an error. `gc` deletes leased generations of them later.
    /// - Throws: ``ContainerError`` if the packs of the container cannot be determined; none is removed then.
    public func removeObsoletePacks(
        reportFailure: (PackID, ContainerError) -> Void
    ) throws(ContainerError) -> [PackID] {
        guard let catalogue = try reader.manifestCatalogue() else { return [] }
        let wanted = catalogue.keptPacks.union(catalogue.manifests.flatMap(\.packs).map(\.id))
        var removed: [PackID] = []
        for id in try reader.unpinnedPacks(except: wanted) {
            do throws(ContainerError) {
                guard let lock = try attemptLock(id), try reader.pin(of: id) == nil else {
                    continue
                }
                // No manifest offers the pack, so it has no single files or downloads.
                let removal = try removeStaged(lock)
                try removal.check()
                removed.append(id)
            } catch {
                reportFailure(id, error)
            }
        }
        return removed
    }
}
