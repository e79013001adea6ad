public import FoundationEssentials
import Glibc
import StageContainer
public import StageModel
public import SystemPackage

extension PackStore {
    /// Returns the content of a file in a staged pack, mapped into memory if that is safe.
    ///
    /// Without an ID, searches all staged packs in order of precedence, and uses the first one that contains
    /// the path.
    ///
    /// - Throws: The errors of ``url(for:searchingInPack:)``; ``PackStoreError/unreadable(_:_:)`` if the path is that of a
    ///   directory, or the file cannot be read.
    public func contents(
        at path: String,
        searchingInPack id: PackID? = nil
    ) throws(PackStoreError) -> Data {
        try Self.contents(of: try url(for: path, searchingInPack: id))
    }

    static func contents(of url: URL) throws(PackStoreError) -> Data {
        do {
            return try Data(contentsOf: url, options: .mappedIfSafe)
        } catch {
            let cause = (error as? CocoaError)?.underlying as? POSIXError
            let errno = cause.map { Errno(rawValue: $0.code.rawValue) }
            throw .unreadable(FilePath(url.path), errno ?? .ioError)
        }
    }

    /// Opens a file in a staged pack for reading; the caller closes it, and programs that the process executes do not
    /// inherit it.
    ///
    /// The descriptor stays valid after the file is deleted.
    ///
    /// - Throws: The errors of ``url(for:searchingInPack:)``; ``PackStoreError/unreadable(_:_:)`` if the file cannot be
    ///   opened.
    public func descriptor(
        for path: String,
        searchingInPack id: PackID? = nil
    ) throws(PackStoreError) -> FileDescriptor {
        try Self.descriptor(of: try url(for: path, searchingInPack: id))
    }

    static func descriptor(of url: URL) throws(PackStoreError) -> FileDescriptor {
        do {
            return try FileDescriptor.open(
                FilePath(url.path),
                .readOnly,
                options: [.closeOnExec]
            )
        } catch {
            throw .unreadable(FilePath(url.path), error as? Errno ?? .ioError)
        }
    }

    /// Returns the URL of a file or directory in a staged pack.
    ///
    /// The path is relative to the root of the pack and cannot leave it: paths with `..` are not found, and
    /// links were checked when the pack was unpacked. Without an ID, searches all staged packs in order of
    /// precedence. Only the pack that contains the path is leased, and counts as used.
    ///
    /// Costs the system calls of ``currentGeneration(of:)`` and two more for each pack without the path.
    ///
    /// - Throws: ``PackStoreError/fileNotFound(_:)`` if no staged pack contains the path, or the pack is not staged;
    ///   ``PackStoreError/container(_:)`` if a container exists but cannot be read.
    public func url(
        for path: String,
        searchingInPack id: PackID? = nil
    ) throws(PackStoreError) -> URL {
        let relative = FilePath(path)
        guard relative.isRelative, !relative.components.contains(where: { $0.kind != .regular })
        else {
            throw .fileNotFound(path)
        }
        let packs = if let id { [id] } else { try stagedPacks() }
        for pack in packs {
            if case .found(let url) = try search(for: relative, in: pack) { return url }
        }
        throw .fileNotFound(path)
    }
}
