import FoundationEssentials
public import StageContainer
public import StageModel
import StageSystem
public import SystemPackage

extension PackStore {
    /// Returns the stored manifests, by application; from several containers, the manifest that was received
    /// last.
    public func storedManifests() throws(PackStoreError) -> [ApplicationID: StoredManifest] {
        try withView { (view) throws(ContainerError) in
            try view.storedManifests().mapValues(\.record)
        }
    }

    /// Returns the manifests of ``storedManifests()``, and reads only those whose files have changed since the last call
    /// with this cache.
    package func storedManifests(
        reusing cache: inout ManifestCache
    ) throws(PackStoreError) -> [ApplicationID: StoredManifest] {
        let now = Int64(Date().timeIntervalSince1970)
        return try withView { (view) throws(ContainerError) in
            try view.storedManifests(reusing: &cache, at: now).mapValues(\.record)
        }
    }

    /// Downloads the manifest, and stores it in the first container.
    ///
    /// - Throws: ``PackStoreError/manifestUnavailable(_:)`` if the download fails or the store has no fetcher;
    ///   ``PackStoreError/cancelled``.
    public func fetchManifest() async throws(PackStoreError) {
        guard let fetcher, let container = containers.first else {
            throw .manifestUnavailable(
                FetchFailure(reason: "the store fetches nothing", retryAdvice: .never)
            )
        }
        do {
            try await fetcher.fetchManifest(into: container)
        } catch let failure as FetchFailure {
            throw .manifestUnavailable(failure)
        } catch is CancellationError {
            throw .cancelled
        } catch {
            throw .manifestUnavailable(FetchFailure(reason: "\(error)", retryAdvice: .later))
        }
    }

    /// Returns the name of the generation that readers use, or `nil` if the pack is not staged.
    ///
    /// Costs one stat(2), one fstat(2), one readlink(2) and two fstatat(2) per container and, if several have the
    /// pack, reading its pin in each.
    public func currentGeneration(of id: PackID) throws(PackStoreError) -> GenerationName? {
        try withView { (view) throws(ContainerError) in try view.copies(of: id).first?.generation }
    }

    /// Returns the pin of the copy that readers use, or `nil` if that is not pinned.
    public func pin(of id: PackID) throws(PackStoreError) -> Pin? {
        try withView { (view) throws(ContainerError) in
            try view.copiesWithPins(of: id).first?.pin
        }
    }

    /// Returns the record of the generation that readers use, or `nil` if the pack is not staged.
    public func record(of id: PackID) throws(PackStoreError) -> StagedPack? {
        try withView { (view) throws(ContainerError) in
            for copy in try view.copies(of: id) {
                if let record = try view.readers[copy.container]?.record(of: id) { return record }
            }
            return nil
        }
    }

    /// Returns a lease on the generation that readers use, or `nil` if the pack is not staged.
    ///
    /// This store does not keep it, and the pack does not count as used.
    package func temporaryLease(of id: PackID) throws(PackStoreError) -> Lease? {
        try withView { (view) throws(ContainerError) in
            for copy in try view.copies(of: id) {
                // If the copy has been removed meanwhile, tries the next one.
                let lease = try view.readers[copy.container]?.lease(id, marksUse: false)
                if let lease { return lease }
            }
            return nil
        }
    }

    /// Returns the container that readers use for a pack, or `nil` if the pack is not staged.
    public func container(of id: PackID) throws(PackStoreError) -> FilePath? {
        try withView { (view) throws(ContainerError) in
            try view.copies(of: id).first.map { view.containers[$0.container] }
        }
    }

    /// Returns the owner of the container that readers use for a pack: the user or the system.
    ///
    /// - Returns: `nil` if the pack is not staged, or if its container is at another path.
    public func location(of id: PackID) throws(PackStoreError) -> ContainerLocation? {
        try container(of: id).flatMap { ContainerLocations.location(of: $0) }
    }

    /// Removes a pack and its single files from every container that this user can change, and releases this
    /// store's leases on them.
    ///
    /// A copy in another container stays; ``container(of:)`` returns that container. Other processes that read
    /// the pack can continue; `stagepack gc` deletes their generations later.
    ///
    /// A transfer of the pack that an earlier process has left to the daemon continues, and may install the pack again:
    /// `stagepack remove` cancels it.
    ///
    /// - Returns: `true` if the pack was staged or single files of it existed.
    /// - Throws: ``PackStoreError/container(_:)`` if the pack is pinned or being staged in one of the containers,
    ///   or if only containers have it that this user cannot change; then nothing was removed. Also if files of
    ///   it cannot be removed; then it is not staged any more.
    @discardableResult
    public func remove(_ id: PackID) async throws(PackStoreError) -> Bool {
        try await remove(id, waitingAtMost: .zero)
    }

    /// Removes a pack as ``remove(_:)`` does, but waits for `limit` at most while other processes stage it.
    ///
    /// - Throws: ``PackStoreError``; ``ContainerError/busy(_:)`` in it after that time, or once the task is cancelled.
    package func remove(
        _ id: PackID,
        waitingAtMost limit: Duration
    ) async throws(PackStoreError) -> Bool {
        let found = try await onBlockingThread { [self] () throws(ContainerError) in
            try changeableContainers(with: id)
        }
        let copies: [(container: Container, lock: PackLock)]
        do throws(ContainerError) {
            copies = try await Self.lock(id, in: found, within: limit)
        } catch {
            throw .container(error)
        }
        return try await onBlockingThread { [self] () throws(ContainerError) in
            release(id)
            var removal = Removal()
            for (container, lock) in copies { removal.add(try container.remove(lock)) }
            try removal.check()
            return !copies.isEmpty
        }
    }

    /// Locks the pack in each of the containers; throws if one pins it.
    private static func lock(
        _ id: PackID,
        in containers: [Container],
        within limit: Duration
    ) async throws(ContainerError) -> [(container: Container, lock: PackLock)] {
        let deadline = SuspendingClock.now + limit.sleepable
        var copies: [(Container, PackLock)] = []
        for container in containers {
            let remaining = deadline - .now
            guard let lock = try await container.waitForLock(id, within: remaining) else {
                throw .busy(id)
            }
            if let pin = try container.reader.pin(of: id) {
                throw .pinned(id, version: pin.version)
            }
            copies.append((container, lock))
        }
        return copies
    }

    /// Returns the containers that have the pack and that this user can change; throws if only others have it.
    private func changeableContainers(with id: PackID) throws(ContainerError) -> [Container] {
        var found: [Container] = []
        var foreign: FilePath?
        for path in containers {
            guard let reader = try ContainerReader.open(path), try reader.hasAny(of: id),
                let container = try Container.open(path)
            else { continue }
            guard container.isWritable() else {
                foreign = path
                continue
            }
            found.append(container)
        }
        if found.isEmpty, let foreign {
            throw .file(FileError("change", path: foreign, errno: .permissionDenied))
        }
        return found
    }

    /// Removes the packs that no manifest offers from the first container.
    ///
    /// Leased generations stay, including those of this store. Removes nothing if no manifest is stored.
    ///
    /// - Returns: The removed packs.
    /// - Throws: ``PackStoreError`` if a pack cannot be removed; the others are removed nevertheless.
    public func removeObsoletePacks() async throws(PackStoreError) -> [PackID] {
        guard let path = containers.first else { return [] }
        return try await onBlockingThread { () throws(ContainerError) in
            guard let container = try Container.open(path),
                try !container.reader.applications().isEmpty
            else { return [] }
            var failure: ContainerError?
            let removed = try container.removeObsoletePacks { _, error in
                failure = failure ?? error
            }
            if let failure { throw failure }
            return removed
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
    /// Returns whether the pack is staged or single files of it exist.
    fileprivate func hasAny(of id: PackID) throws(ContainerError) -> Bool {
        if try currentGeneration(of: id) != nil { return true }
        for digest in try offeredContent(of: id) where try partialContent(of: digest) != nil {
            return true
        }
        return false
    }
}
