public import StageContainer
public import StageModel
import StageSystem
public import SystemPackage

extension PackStore {
    /// Returns the manifests that were accepted last, by application: of several containers' the one that
    /// was received last.
    public func storedManifests() throws(PackStoreError) -> [ApplicationID: StoredManifest] {
        try withView { (view) throws(ContainerError) in
            try view.storedManifests().mapValues(\.record)
        }
    }

    /// Asks the server for the manifest, and keeps it beside the packs that are fetched.
    ///
    /// - Throws: ``PackStoreError/manifestUnavailable(_:)`` if it cannot be had, or the store has no
    ///   fetcher; ``PackStoreError/cancelled``.
    public func fetchManifest() async throws(PackStoreError) {
        guard let fetcher, let container = containers.first else {
            throw .manifestUnavailable(
                FetchFailure(reason: "the store fetches nothing", retry: .never)
            )
        }
        do {
            try await fetcher.fetchManifest(into: container)
        } catch let failure as FetchFailure {
            throw .manifestUnavailable(failure)
        } catch is CancellationError {
            throw .cancelled
        } catch {
            throw .manifestUnavailable(FetchFailure(reason: "\(error)", retry: .later))
        }
    }

    /// Returns the name of the generation of a pack that is read, or `nil` if the pack is not staged.
    ///
    /// Costs a readlink(2) for each container; where several have the pack, also a look at its pin and its files in each.
    public func currentGeneration(of id: PackID) throws(PackStoreError) -> GenerationName? {
        try withView { (view) throws(ContainerError) in try view.copies(of: id).first?.generation }
    }

    /// Returns what is known of the generation of a pack that is read, or `nil` if the pack is not staged.
    public func record(of id: PackID) throws(PackStoreError) -> StagedPack? {
        try withView { (view) throws(ContainerError) in
            for copy in try view.copies(of: id) {
                if let record = try view.readers[copy.container]?.record(of: id) { return record }
            }
            return nil
        }
    }

    /// Returns the container that a pack is read from, or `nil` if the pack is not staged.
    public func container(of id: PackID) throws(PackStoreError) -> FilePath? {
        try withView { (view) throws(ContainerError) in
            try view.copies(of: id).first.map { view.containers[$0.container] }
        }
    }

    /// Returns whose container a pack is read from: the user's or the system's.
    ///
    /// - Returns: `nil` if the pack is not staged, or its container is in another place.
    public func location(of id: PackID) throws(PackStoreError) -> ContainerLocation? {
        try container(of: id).flatMap { ContainerLocations.location(of: $0) }
    }

    /// Removes a pack, and single files of it, from every container that this user may change, and gives up
    /// this store's leases on them.
    ///
    /// Where another container has the pack, too, it stays there, and ``container(of:)`` names it.
    /// Other processes that read the pack go on reading; what they hold is removed when they have ended,
    /// by `stagepack gc`.
    ///
    /// - Returns: whether the pack was staged, or files of it were here.
    /// - Throws: ``PackStoreError/container(_:)`` if the pack is being staged, or only a container has it
    ///   that is not this user's to change.
    @discardableResult
    public func remove(_ id: PackID) async throws(PackStoreError) -> Bool {
        release(id)
        let paths = containers
        return try await onBlockingThread { () throws(ContainerError) in
            var wasHere = false
            var foreign: FilePath?
            for path in paths {
                guard let reader = try ContainerReader.open(path), try reader.hasAny(of: id),
                    let container = try Container.open(path)
                else { continue }
                guard container.isWritable() else {
                    foreign = path
                    continue
                }
                guard let lock = try container.attemptLock(id) else {
                    throw .busy(id)
                }
                _ = try container.remove(lock)
                wasHere = true
            }
            if !wasHere, let foreign {
                throw .file(FileError("change", path: foreign, errno: .permissionDenied))
            }
            return wasHere
        }
    }

    /// Removes the packs that no manifest offers any more from the container that packs are fetched into.
    ///
    /// What this store has handed out of them stays. Nothing is removed while there is no manifest.
    ///
    /// - Returns: the packs that are removed.
    public func removeObsoletePacks() async throws(PackStoreError) -> [PackID] {
        guard let path = containers.first else { return [] }
        return try await onBlockingThread { () throws(ContainerError) in
            guard let container = try Container.open(path),
                try !container.reader.applications().isEmpty
            else { return [] }
            return try container.removeObsoletePacks()
        }
    }

    private func onBlockingThread<Value: Sendable>(
        _ body: @escaping @Sendable () throws(ContainerError) -> Value
    ) async throws(PackStoreError) -> Value {
        do throws(ContainerError) {
            return try await withBlockingThread(body)
        } catch {
            throw .container(error)
        }
    }
}

extension ContainerReader {
    /// Whether the pack is staged, or single files of it are here.
    fileprivate func hasAny(of id: PackID) throws(ContainerError) -> Bool {
        if try currentGeneration(of: id) != nil { return true }
        for digest in try offeredContent(of: id) where try partialContent(of: digest) != nil {
            return true
        }
        return false
    }
}
