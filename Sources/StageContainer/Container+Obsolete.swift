public import StageModel

extension Container {
    /// Removes the packs that no manifest of the container's applications offers.
    ///
    /// Removes nothing if a manifest cannot be read. Skips packs that are being staged, those of
    /// ``ContainerReader/keptPacks()``, and pinned packs unless `includingPinned` is set because their
    /// application is gone.
    ///
    /// - Returns: The removed packs. Leased generations of them are deleted by a later sweep.
    public func removeObsoletePacks(
        includingPinned: Bool = false
    ) throws(ContainerError) -> [PackID] {
        guard let catalogue = try reader.manifestCatalogue() else { return [] }
        let wanted = catalogue.keptPacks.union(catalogue.manifests.flatMap(\.packs).map(\.id))
        var removed: [PackID] = []
        for id in try reader.stagedPacks() where !wanted.contains(id) {
            guard let lock = try attemptLock(id) else { continue }
            if !includingPinned, try reader.pin(of: id) != nil { continue }
            _ = try remove(lock)
            removed.append(id)
        }
        return removed
    }
}
