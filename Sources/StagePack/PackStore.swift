public import FoundationEssentials
import StageContainer
public import StageModel
import StageSystem
import Synchronization
public import SystemPackage

/// Read access to the packs of an application group for an application: staged packs are available at once,
/// others are fetched on demand.
///
/// ```swift
/// import StageModel
/// import StagePack
///
/// let store = PackStore(
///     containers: ContainerLocations.forReading(try ApplicationGroupID("net.example")),
///     fetcher: CommandFetcher(source: .application(try ApplicationID("net.example.wallpaper")))
/// )
/// let folder = try await store.loadPack("aurora")
/// let level = try await store.contents(at: "maps/1.map", inPack: PackID("levels"))
/// ```
///
/// URLs from a store are valid for its lifetime or until ``release(_:)``, even if a new version is published:
/// the store holds a lease on each generation that it returned the directory or a file of, and on the single files of
/// unstaged packs, but on no pack that a search passed over. If a container is deleted, its URLs become invalid; a new
/// one at its path is read from the next call on.
public final class PackStore: Sendable {
    /// The containers to read; packs are fetched into the first one.
    ///
    /// If several have a pack, a pinned copy comes before others, then the highest version, then the first
    /// container.
    public let containers: [FilePath]
    let precedence: [PackID]
    let fetcher: (any PackFetcher)?
    private let broadcast = Broadcast<PackUpdate>(
        buffering: 64,
        haveSameSubject: { $0.id == $1.id },
        kind: { update in
            switch update {
            case .downloading(_, let progress): progress.waitingFor == nil ? .progress : .state
            case .began, .finished, .failed: .step
            }
        }
    )
    private let state: Mutex<State>

    private struct State {
        var readers: [ContainerReader?]
        var held: [PackID: [HeldPack]] = [:]
        var heldFiles: [PackID: [HeldFiles]] = [:]

        /// Releases the leases on the generations and files of one container.
        mutating func release(container: Int) {
            held = held.mapValues { packs in packs.filter { $0.reader != container } }
            heldFiles = heldFiles.mapValues { files in files.filter { $0.reader != container } }
        }

        /// Keeps the lease on a generation, unless it is kept already.
        mutating func hold(_ pack: HeldPack) {
            let id = pack.lease.id
            guard held[id]?.contains(where: { $0.lease === pack.lease }) != true else { return }
            held[id, default: []].append(pack)
        }
    }

    /// Single files that this store has returned.
    private struct HeldFiles {
        var reader: Int
        var content: PartialContent
    }

    /// A generation that this store has returned.
    private struct HeldPack {
        var reader: Int
        var lease: Lease
        var url: URL
    }

    /// Creates a store that reads containers.
    ///
    /// - Parameters:
    ///   - containers: The directories: the user's first, then the system's. They need not exist yet.
    ///   - precedence: The order of packs in searches without an ID: these first, then the others by ID.
    ///   - fetcher: Fetches packs that are not staged; `nil` to fetch nothing.
    public init(
        containers: [FilePath],
        precedence: [PackID] = [],
        fetcher: (any PackFetcher)? = nil
    ) {
        self.containers = containers
        self.precedence = precedence
        self.fetcher = fetcher
        state = Mutex(State(readers: containers.map { _ in nil }))
    }

    /// Creates a store that reads the containers at paths, in a program that does not import `SystemPackage`.
    ///
    /// - Parameters:
    ///   - containerPaths: The directories: the user's first, then the system's. They need not exist yet.
    ///   - precedence: The order of packs in searches without an ID: these first, then the others by ID.
    ///   - fetcher: Fetches packs that are not staged; `nil` to fetch nothing.
    public convenience init(
        containerPaths: [String],
        precedence: [PackID] = [],
        fetcher: (any PackFetcher)? = nil
    ) {
        self.init(
            containers: containerPaths.map { FilePath($0) },
            precedence: precedence,
            fetcher: fetcher
        )
    }

    /// Returns the updates, from now on, of packs that this store fetches.
    ///
    /// Call it before the call that fetches: in a task that starts later, the first updates are missing. Each call adds a
    /// listener, until its stream is released or its iteration is cancelled. For a listener that is more than 64 updates
    /// behind, progress updates and waits that are over are dropped first, the oldest ones of a pack.
    public func updates() -> AsyncStream<PackUpdate> { broadcast.elements() }

    /// Returns the directory of a staged pack, or `nil` if the pack is not staged.
    ///
    /// Costs one stat(2), one fstat(2) and one readlink(2) per container if the store holds a lease on the pack, and
    /// otherwise also an open(2) and a lock. If several containers have the pack, it also reads the pin and a status of the
    /// files in each.
    ///
    /// - Throws: ``PackStoreError/invalidID(_:)`` if `id` is not a valid ID of a pack;
    ///   ``PackStoreError/container(_:)`` if a container exists but cannot be read. A missing container is not
    ///   an error.
    public func localURL(for id: String) throws(PackStoreError) -> URL? {
        try localURL(for: Self.packID(id))
    }

    /// Returns the directory of a staged pack, or `nil` if the pack is not staged.
    ///
    /// - Throws: ``PackStoreError/container(_:)`` if a container exists but cannot be read.
    public func localURL(for id: PackID) throws(PackStoreError) -> URL? {
        do throws(ContainerError) {
            return try state.withLock { state throws(ContainerError) in
                try find(id, updating: &state)?.url
            }
        } catch {
            throw .container(error)
        }
    }

    /// Returns the directory of a pack, after fetching the pack if it is not staged.
    ///
    /// - Throws: ``PackStoreError/invalidID(_:)`` if `id` is not a valid ID of a pack; other cases of ``PackStoreError``, see
    ///   ``PackStoreError/retryAdvice``. After a timeout or a cancellation, the next call resumes the download.
    public func loadPack(
        _ id: String,
        options: LoadOptions = LoadOptions()
    ) async throws(PackStoreError) -> URL {
        try await loadPack(Self.packID(id), options: options)
    }

    /// Returns the directory of a pack in its newest version, or in a newer one that another application of the group
    /// offers, after fetching the pack if neither is staged.
    ///
    /// - Parameters:
    ///   - id: The pack.
    ///   - options: Options for fetching the pack.
    ///   - report: Receives the progress of the fetch; calls do not overlap.
    /// - Returns: The directory.
    /// - Throws: The same errors as `loadPack(_:options:)`. If a newer version cannot be fetched, or the copy
    ///   that readers use is pinned, the staged version stays.
    public func updatePack(
        _ id: PackID,
        options: LoadOptions = LoadOptions(),
        report: @escaping @Sendable (FetchProgress) -> Void = { _ in }
    ) async throws(PackStoreError) -> URL {
        guard let fetcher, !options.isOffline, let container = containers.first else {
            throw .notStaged(id)
        }
        let broadcast = broadcast
        let others = Array(containers.dropFirst())
        broadcast.send(.began(id))
        do throws(PackStoreError) {
            try await Self.fetching(id, within: options.timeout) {
                try await fetcher.fetch(id, into: container, beside: others) { progress in
                    broadcast.send(.downloading(id, progress))
                    report(progress)
                }
            }
            guard let url = try localURL(for: id) else { throw .notStaged(id) }
            broadcast.send(.finished(id))
            return url
        } catch {
            broadcast.send(.failed(id, error))
            throw error
        }
    }

    /// Releases the leases on a pack: its URLs from this store may become invalid from now on.
    public func release(_ id: PackID) {
        state.withLock { state in
            state.held[id] = nil
            state.heldFiles[id] = nil
        }
    }

    /// Returns the IDs of the staged packs, in order of precedence.
    ///
    /// - Throws: ``PackStoreError/container(_:)`` if a container exists but cannot be read.
    public func stagedPacks() throws(PackStoreError) -> [PackID] {
        let found = try withView { (view) throws(ContainerError) in try view.stagedPacks() }
        let named = precedence.filter(found.contains)
        return named + found.subtracting(named).sorted()
    }

    private func find(_ id: PackID, updating state: inout State) throws(ContainerError) -> HeldPack?
    {
        let view = try openView(&state)
        for copy in try view.copies(of: id) {
            // If the copy has been removed meanwhile, tries the next one.
            guard let pack = try leased(copy, of: id, in: view, state: state) else { continue }
            state.hold(pack)
            return pack
        }
        return nil
    }

    /// Returns a copy with the lease that the store holds, or else with a new one, which it does not hold yet;
    /// `nil` if the copy has been removed meanwhile.
    private func leased(
        _ copy: ContainerView.Copy,
        of id: PackID,
        in view: ContainerView,
        state: State
    ) throws(ContainerError) -> HeldPack? {
        let known = state.held[id]?.first {
            $0.reader == copy.container && $0.lease.generation == copy.generation
        }
        if let known { return known }
        guard let lease = try view.readers[copy.container]?.lease(id) else { return nil }
        let url = URL(filePath: lease.content.string, directoryHint: .isDirectory)
        return HeldPack(reader: copy.container, lease: lease, url: url)
    }

    /// The result of a search for a path in a pack.
    enum PathSearch: Sendable {
        /// The pack is not staged.
        case notStaged
        /// The copy that readers use does not contain the path.
        case missing
        /// The file or directory at the path.
        case found(URL)
    }

    /// Searches the copy of a pack that readers use for a path, following links.
    ///
    /// Holds a lease on the copy from then on if it contains the path. A copy without the path gets no lease, which
    /// would mark the pack as used.
    func search(for path: FilePath, in id: PackID) throws(PackStoreError) -> PathSearch {
        do throws(ContainerError) {
            return try state.withLock { state throws(ContainerError) in
                try search(for: path, in: id, updating: &state)
            }
        } catch {
            throw .container(error)
        }
    }

    private func search(
        for path: FilePath,
        in id: PackID,
        updating state: inout State
    ) throws(ContainerError) -> PathSearch {
        let view = try openView(&state)
        attempts: while true {
            for copy in try view.copies(of: id) {
                guard let reader = view.readers[copy.container] else { continue }
                if try reader.hasEntry(at: path, of: id) {
                    // If the copy has been removed meanwhile, tries the next one.
                    guard let pack = try leased(copy, of: id, in: view, state: state) else {
                        continue
                    }
                    let full = FilePath(pack.url.path).pushing(path)
                    if FileStatus.exists(full) {
                        state.hold(pack)
                        return .found(URL(filePath: full.string))
                    }
                }
                // A generation that was replaced meanwhile does not tell what the next one contains.
                guard try reader.currentGeneration(of: id) != copy.generation else {
                    return .missing
                }
                continue attempts
            }
            return .notStaged
        }
    }

    /// Returns the containers that exist now; opens those that were missing before, and those that were deleted and
    /// created again.
    private func openView(_ state: inout State) throws(ContainerError) -> ContainerView {
        for index in containers.indices {
            if let reader = state.readers[index] {
                guard reader.isReplaced else { continue }
                // A lease on a deleted generation protects none of the same name in the new container.
                state.release(container: index)
            }
            state.readers[index] = try ContainerReader.open(containers[index])
        }
        return ContainerView(containers: containers, readers: state.readers)
    }

    /// Calls `body` with the containers that exist now, and returns its result.
    func withView<Value>(
        _ body: (ContainerView) throws(ContainerError) -> Value
    ) throws(PackStoreError) -> Value {
        do throws(ContainerError) {
            let view = try state.withLock { state throws(ContainerError) in try openView(&state) }
            return try body(view)
        } catch {
            throw .container(error)
        }
    }

    /// Runs `body`, with a timeout if one is given, and throws its error as one of the store.
    static func fetching(
        _ id: PackID,
        within timeout: Duration?,
        perform body: @escaping @Sendable () async throws -> Void
    ) async throws(PackStoreError) {
        do {
            try await withThrowingTaskGroup(of: Bool.self) { group in
                group.addTask {
                    try await FetchContext.$hasTimeout.withValue(timeout != nil) {
                        try await body()
                    }
                    return true
                }
                if let timeout {
                    group.addTask {
                        try await Task.sleep(for: timeout.sleepable)
                        return false
                    }
                }
                let hasArrived = try await group.next() ?? false
                group.cancelAll()
                if !hasArrived, let timeout {
                    throw PackStoreError.timedOut(id, after: timeout)
                }
            }
        } catch let error as PackStoreError {
            throw error
        } catch let failure as FetchFailure {
            throw .fetchFailed(id, failure)
        } catch is CancellationError {
            throw .cancelled
        } catch {
            throw .fetchFailed(id, FetchFailure(reason: "\(error)", retryAdvice: .later))
        }
    }

    /// Returns the open containers, with their positions.
    func readers() throws(ContainerError) -> [(position: Int, reader: ContainerReader)] {
        let view = try state.withLock { state throws(ContainerError) in try openView(&state) }
        return view.readers.enumerated().compactMap { position, reader in
            reader.map { (position, $0) }
        }
    }

    /// Returns the single files of a version if this store holds a lease on them.
    func heldFiles(_ digest: Digest, of id: PackID, in reader: Int) -> PartialContent? {
        state.withLock { state in
            state.heldFiles[id]?.first { $0.reader == reader && $0.content.digest == digest }?
                .content
        }
    }

    /// Keeps the lease on single files that are returned to the caller.
    func hold(_ content: PartialContent, of id: PackID, in reader: Int) {
        state.withLock { state in
            state.heldFiles[id, default: []].append(HeldFiles(reader: reader, content: content))
        }
    }

    static func packID(_ text: String) throws(PackStoreError) -> PackID {
        do throws(ValueError) {
            return try PackID(text)
        } catch {
            throw .invalidID(error)
        }
    }
}
