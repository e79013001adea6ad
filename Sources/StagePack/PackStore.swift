public import FoundationEssentials
import StageContainer
public import StageModel
import Synchronization
public import SystemPackage

/// The packs of an application group, as an application reads them: staged ones at once, the others
/// fetched on demand.
///
/// ```swift
/// let store = PackStore(containers: ["/var/lib/stagepack/groups/net.example.wallpaper"])
/// let folder = try await store.loadPack("aurora")
/// let level = try await store.contents(at: "maps/1.map", inPack: PackID("levels"))
/// ```
///
/// What a store hands out stays valid for as long as the store lives or until ``release(_:)``,
/// whatever is published meanwhile: it holds a lease on each generation it has named, and on the single
/// files of packs that are not staged.
public final class PackStore: Sendable {
    /// How a pack is loaded.
    public struct LoadOptions: Sendable {
        /// How long to wait for a pack that has to be fetched; `nil` waits as long as it takes.
        public var deadline: Duration?
        /// Whether to fetch nothing.
        public var isOffline: Bool

        /// Creates options: by default, without a deadline and not offline.
        public init(deadline: Duration? = nil, isOffline: Bool = false) {
            self.deadline = deadline
            self.isOffline = isOffline
        }
    }

    /// Where packs are looked for; the first is where fetched packs go.
    ///
    /// Where several have a pack, a pinned copy goes before others, then the highest version, then the first container.
    public let containers: [FilePath]
    let precedence: [PackID]
    let fetcher: (any PackFetcher)?
    private let broadcast = UpdateBroadcast()
    private let state: Mutex<State>

    private struct State {
        var readers: [ContainerReader?]
        var held: [PackID: [HeldPack]] = [:]
        var heldFiles: [PackID: [HeldFiles]] = [:]
    }

    /// Single files that this store has handed out.
    private struct HeldFiles {
        var reader: Int
        var content: PartialContent
    }

    /// A generation that this store has handed out.
    private struct HeldPack {
        var reader: Int
        var lease: Lease
        var url: URL
    }

    /// Creates a store that reads containers.
    ///
    /// - Parameters:
    ///   - containers: The directories, the user's before the system's. They need not exist yet.
    ///   - precedence: Which pack wins where several have a file at one path: those named here, in this
    ///     order, then the others by id.
    ///   - fetcher: What fetches a pack that is not staged; `nil` fetches nothing.
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

    /// What happens to the packs that this store fetches, from now on.
    public var updates: AsyncStream<PackUpdate> { broadcast.updates() }

    /// Returns the directory of a staged pack, or `nil` if the pack is not staged.
    ///
    /// Costs a readlink(2) for each container where the store holds the pack already, else an open(2) and a lock more;
    /// where several containers have the pack, also a look at its pin and its files in each.
    ///
    /// - Throws: ``PackStoreError/invalidID(_:)`` if `id` is not a pack's id;
    ///   ``PackStoreError/container(_:)`` if a container is there but cannot be read. That no container
    ///   is there is not an error.
    public func localURL(for id: String) throws(PackStoreError) -> URL? {
        try localURL(for: Self.packID(id))
    }

    /// Returns the directory of a staged pack, or `nil` if the pack is not staged.
    public func localURL(for id: PackID) throws(PackStoreError) -> URL? {
        do throws(ContainerError) {
            return try state.withLock { state throws(ContainerError) in
                try find(id, &state)?.url
            }
        } catch {
            throw .container(error)
        }
    }

    /// Returns the directory of a pack, which is fetched first where it is not staged.
    ///
    /// - Throws: ``PackStoreError``, which tells by ``PackStoreError/retryAdvice`` when trying again
    ///   makes sense. After a deadline or a cancellation, the next call goes on where this one ended.
    public func loadPack(
        _ id: String,
        options: LoadOptions = LoadOptions()
    ) async throws(PackStoreError) -> URL {
        let id = try Self.packID(id)
        if let url = try localURL(for: id) { return url }
        return try await updatePack(id, options: options)
    }

    /// Returns the directory of a pack in its newest version, which is fetched first where another or
    /// none is staged.
    ///
    /// - Parameters:
    ///   - id: The pack.
    ///   - options: How it is fetched.
    ///   - report: Told how far the fetch has come, one call after another.
    /// - Returns: the directory.
    /// - Throws: As ``loadPack(_:options:)``. The version that was staged before stays where a newer one
    ///   cannot be had.
    public func updatePack(
        _ id: PackID,
        options: LoadOptions = LoadOptions(),
        report: @escaping @Sendable (FetchProgress) -> Void = { _ in }
    ) async throws(PackStoreError) -> URL {
        guard let fetcher, !options.isOffline, let container = containers.first else {
            throw .notStaged(id)
        }
        let broadcast = broadcast
        broadcast.send(.began(id))
        do throws(PackStoreError) {
            try await Self.fetching(id, within: options.deadline) {
                try await fetcher.fetch(id, into: container) { progress in
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

    /// Gives up the leases on a pack: what this store handed out of it may be removed from now on.
    public func release(_ id: PackID) {
        state.withLock { state in
            state.held[id] = nil
            state.heldFiles[id] = nil
        }
    }

    /// Returns the ids of the staged packs, in the order of precedence.
    public func stagedPacks() throws(PackStoreError) -> [PackID] {
        let found = try withView { (view) throws(ContainerError) in try view.stagedPacks() }
        let named = precedence.filter(found.contains)
        return named + found.subtracting(named).sorted()
    }

    private func find(_ id: PackID, _ state: inout State) throws(ContainerError) -> HeldPack? {
        let view = try openView(&state)
        for copy in try view.copies(of: id) {
            let known = state.held[id]?.first {
                $0.reader == copy.container && $0.lease.generation == copy.generation
            }
            if let known { return known }
            // A copy that was removed since leaves the next one.
            guard let lease = try view.readers[copy.container]?.lease(id) else { continue }
            let url = URL(filePath: lease.content.string, directoryHint: .isDirectory)
            let held = HeldPack(reader: copy.container, lease: lease, url: url)
            state.held[id, default: []].append(held)
            return held
        }
        return nil
    }

    /// The containers that are there now: one that is missing is looked for each time.
    private func openView(_ state: inout State) throws(ContainerError) -> ContainerView {
        for index in containers.indices where state.readers[index] == nil {
            state.readers[index] = try ContainerReader.open(containers[index])
        }
        return ContainerView(containers: containers, readers: state.readers)
    }

    /// Returns what `body` returns for the containers that are there now.
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

    /// Runs `body`, within the deadline if there is one, and tells its failure as the store's.
    static func fetching(
        _ id: PackID,
        within deadline: Duration?,
        _ body: @escaping @Sendable () async throws -> Void
    ) async throws(PackStoreError) {
        do {
            try await withThrowingTaskGroup(of: Bool.self) { group in
                group.addTask {
                    try await body()
                    return true
                }
                if let deadline {
                    group.addTask {
                        try await Task.sleep(for: deadline)
                        return false
                    }
                }
                let hasArrived = try await group.next() ?? false
                group.cancelAll()
                if !hasArrived, let deadline {
                    throw PackStoreError.deadlineExceeded(id, after: deadline)
                }
            }
        } catch let error as PackStoreError {
            throw error
        } catch let failure as FetchFailure {
            throw .fetchFailed(id, failure)
        } catch is CancellationError {
            throw .cancelled
        } catch {
            throw .fetchFailed(id, FetchFailure(reason: "\(error)", retry: .later))
        }
    }

    /// The open containers, with their positions.
    func readers() throws(ContainerError) -> [(position: Int, reader: ContainerReader)] {
        let view = try state.withLock { state throws(ContainerError) in try openView(&state) }
        return view.readers.enumerated().compactMap { position, reader in
            reader.map { (position, $0) }
        }
    }

    /// The single files of a version that this store holds.
    func heldFiles(_ digest: Digest, of id: PackID, in reader: Int) -> PartialContent? {
        state.withLock { state in
            state.heldFiles[id]?.first { $0.reader == reader && $0.content.digest == digest }?
                .content
        }
    }

    /// Keeps single files that are handed out.
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
