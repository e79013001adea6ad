public import FoundationEssentials
import StageContainer
public import StageModel
import StageSystem
public import SystemPackage

extension PackStore {
    /// Returns where a file of a pack is, which is fetched first, without the rest of the pack, where
    /// neither the pack is staged nor the file is here.
    ///
    /// A staged pack is read as it is staged, whatever the server has. Else a file that was fetched
    /// before is taken without the network if the manifest that the container keeps still offers its
    /// version; and else its version is the one that the server offers. Only indexed packs can be
    /// fetched by file.
    ///
    /// The URL is good for as long as the store lives or until ``release(_:)``: the store holds a lease
    /// on what it has named, and `stagepack gc` leaves that alone.
    ///
    /// - Parameters:
    ///   - path: The path of the file in its pack, links included: relative, without `..`.
    ///   - id: The pack.
    ///   - options: How the file is fetched.
    /// - Returns: the URL of the file; of a staged pack also that of a directory.
    /// - Throws: ``PackStoreError/fileNotFound(_:)`` if the pack has nothing there;
    ///   ``PackStoreError/notStaged(_:)`` if nothing is here and nothing is fetched;
    ///   ``PackStoreError/fetchFailed(_:_:)`` with the reason, such as that the path is a directory, or
    ///   that the pack has no index and is to be loaded whole; ``PackStoreError/deadlineExceeded(_:after:)``
    ///   and ``PackStoreError/cancelled``, after which the next call goes on where this one ended.
    public func url(
        for path: String,
        inPack id: PackID,
        options: LoadOptions = LoadOptions()
    ) async throws(PackStoreError) -> URL {
        let content = try Self.contentPath(path)
        if let url = try await onBlockingThread({ () throws(PackStoreError) in
            try self.localURL(for: path, inPack: id)
        }) {
            return url
        }
        guard let fetcher, !options.isOffline, let container = containers.first else {
            throw .notStaged(id)
        }
        try await Self.fetching(id, within: options.deadline) {
            try await fetcher.fetchFile(content, of: id, into: container)
        }
        let url = try await onBlockingThread { () throws(PackStoreError) in
            try self.localURL(for: path, inPack: id)
        }
        guard let url else { throw .fileNotFound(path) }
        return url
    }

    /// Returns the content of a file of a pack, mapped into memory where that is safe.
    ///
    /// The file is found or fetched as by ``url(for:inPack:options:)``. The bytes stay as long as
    /// somebody has them, whatever is removed.
    ///
    /// - Throws: As ``url(for:inPack:options:)``; ``PackStoreError/unreadable(_:_:)`` if it cannot be
    ///   read.
    public func contents(
        at path: String,
        inPack id: PackID,
        options: LoadOptions = LoadOptions()
    ) async throws(PackStoreError) -> Data {
        let url = try await url(for: path, inPack: id, options: options)
        return try await onBlockingThread { () throws(PackStoreError) in
            try Self.contents(of: url)
        }
    }

    /// Opens a file of a pack for reading; the caller closes it.
    ///
    /// The file is found or fetched as by ``url(for:inPack:options:)``.
    ///
    /// - Throws: As ``contents(at:inPack:options:)``.
    public func descriptor(
        for path: String,
        inPack id: PackID,
        options: LoadOptions = LoadOptions()
    ) async throws(PackStoreError) -> FileDescriptor {
        try Self.descriptor(of: try await url(for: path, inPack: id, options: options))
    }

    /// Returns where a file of a pack is without asking anybody: in the staged pack, or by itself where
    /// it was fetched by ``url(for:inPack:options:)`` or `stagepack load --file`; `nil` if it is not
    /// here.
    ///
    /// Where the pack is not staged, the manifests of the container are read. The URL is good as one of
    /// ``url(for:inPack:options:)`` is.
    ///
    /// - Throws: ``PackStoreError/fileNotFound(_:)`` if the pack is staged and has nothing at the path;
    ///   ``PackStoreError/container(_:)`` if a container is there but cannot be read.
    public func localURL(for path: String, inPack id: PackID) throws(PackStoreError) -> URL? {
        let relative = FilePath(try Self.contentPath(path).text)
        if let root = try localURL(for: id) {
            let full = FilePath(root.path).pushing(relative)
            guard FileStatus.exists(full) else { throw .fileNotFound(path) }
            return URL(filePath: full.string)
        }
        do throws(ContainerError) {
            for (index, reader) in try readers() {
                for digest in try reader.offeredContent(of: id) {
                    let known = heldFiles(digest, of: id, in: index)
                    let found = known == nil ? try reader.partialContent(of: digest) : known
                    guard let files = found, try files.hasFile(relative) else { continue }
                    if known == nil { hold(files, of: id, in: index) }
                    return URL(filePath: files.content.pushing(relative).string)
                }
            }
            return nil
        } catch {
            throw .container(error)
        }
    }

    /// A path that can be one of a pack: what is none is found nowhere.
    private static func contentPath(_ path: String) throws(PackStoreError) -> ContentPath {
        do throws(ValueError) {
            // As paths of staged packs are read: without slashes that say nothing.
            return try ContentPath(FilePath(path).string)
        } catch {
            throw .fileNotFound(path)
        }
    }

    private func onBlockingThread<Value: Sendable>(
        _ body: @escaping @Sendable () throws(PackStoreError) -> Value
    ) async throws(PackStoreError) -> Value {
        try await withBlockingThread(body)
    }
}
