public import FoundationEssentials
import StageContainer
public import StageModel
import StageSystem
public import SystemPackage

extension PackStore {
    /// Returns the URL of a file in a pack; fetches the file, without the rest of the pack, if neither the
    /// pack is staged nor the file was fetched before.
    ///
    /// A staged pack is used in its staged version, without a request. Otherwise a file that was fetched
    /// before is used without a request if the stored manifest still offers its version. Otherwise the file is
    /// fetched in the version that the server offers. Single files can be fetched of indexed packs only.
    ///
    /// The URL is valid for the lifetime of the store or until ``release(_:)``: the store holds a lease, which
    /// `stagepack gc` respects.
    ///
    /// - Parameters:
    ///   - path: The path of the file in its pack: relative, without `..`; links are followed.
    ///   - id: The pack.
    ///   - options: Options for fetching the file.
    /// - Returns: The URL of the file; in a staged pack it may also be a directory.
    /// - Throws: ``PackStoreError/fileNotFound(_:)`` if the pack has no entry at the path;
    ///   ``PackStoreError/notStaged(_:)`` if the file does not exist locally and the store cannot fetch it;
    ///   ``PackStoreError/fetchFailed(_:_:)`` with the reason, for example that the path is a directory, or
    ///   that the pack has no index and must be loaded as a whole;
    ///   ``PackStoreError/timedOut(_:after:)`` and ``PackStoreError/cancelled``, after which the next
    ///   call resumes the download.
    public func url(
        for path: String,
        inPack id: PackID,
        options: LoadOptions = LoadOptions()
    ) async throws(PackStoreError) -> URL {
        let content = try Self.contentPath(path)
        if let url = try await withBlockingThread({ () throws(PackStoreError) in
            try self.localURL(for: path, inPack: id)
        }) {
            return url
        }
        guard let fetcher, !options.isOffline, let container = containers.first else {
            throw .notStaged(id)
        }
        try await Self.fetching(id, within: options.timeout) {
            try await fetcher.fetchFile(content, of: id, into: container)
        }
        let url = try await withBlockingThread { () throws(PackStoreError) in
            try self.localURL(for: path, inPack: id)
        }
        guard let url else { throw .fileNotFound(path) }
        return url
    }

    /// Returns the content of a file in a pack, mapped into memory if that is safe.
    ///
    /// Finds or fetches the file as ``url(for:inPack:options:)`` does. The returned data stays valid after the
    /// file is deleted.
    ///
    /// - Throws: The same errors as ``url(for:inPack:options:)``; ``PackStoreError/unreadable(_:_:)`` if the
    ///   file cannot be read.
    public func contents(
        at path: String,
        inPack id: PackID,
        options: LoadOptions = LoadOptions()
    ) async throws(PackStoreError) -> Data {
        let url = try await url(for: path, inPack: id, options: options)
        return try await withBlockingThread { () throws(PackStoreError) in
            try Self.contents(of: url)
        }
    }

    /// Opens a file in a pack for reading; the caller closes it.
    ///
    /// Finds or fetches the file as ``url(for:inPack:options:)`` does.
    ///
    /// - Throws: The same errors as ``contents(at:inPack:options:)``.
    public func descriptor(
        for path: String,
        inPack id: PackID,
        options: LoadOptions = LoadOptions()
    ) async throws(PackStoreError) -> FileDescriptor {
        try Self.descriptor(of: try await url(for: path, inPack: id, options: options))
    }

    /// Returns the URL of a file in a pack without a request: in the staged pack, or as a single file that
    /// ``url(for:inPack:options:)`` or `stagepack load --file` fetched; `nil` if it does not exist locally.
    ///
    /// If the pack is not staged, reads the manifests of the container. The URL is valid as long as one of
    /// ``url(for:inPack:options:)``.
    ///
    /// - Throws: ``PackStoreError/fileNotFound(_:)`` if the pack is staged and has no entry at the path;
    ///   ``PackStoreError/container(_:)`` if a container exists but cannot be read.
    public func localURL(for path: String, inPack id: PackID) throws(PackStoreError) -> URL? {
        let relative = FilePath(try Self.contentPath(path).text)
        switch try search(for: relative, in: id) {
        case .found(let url): return url
        case .missing: throw .fileNotFound(path)
        case .notStaged: break
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

    /// Parses a path in a pack; throws `fileNotFound` if it is not a valid one.
    private static func contentPath(_ path: String) throws(PackStoreError) -> ContentPath {
        do throws(ValueError) {
            // `FilePath` removes redundant slashes, as it does for paths in staged packs.
            return try ContentPath(FilePath(path).string)
        } catch {
            throw .fileNotFound(path)
        }
    }
}
