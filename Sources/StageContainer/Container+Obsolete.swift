public import StageModel

extension Container {
    /// Removes the packs that no manifest of the container's applications offers any more.
    ///
    /// A pack that is being staged is left alone, and so is everything while a manifest cannot be read.
    /// So are the packs of ``ContainerReader/keptPacks()``, and packs that are pinned, unless their application is gone
    /// (`includingPinned`).
    ///
    /// - Returns: the packs that are removed; one that is being read goes when its readers have ended.
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
