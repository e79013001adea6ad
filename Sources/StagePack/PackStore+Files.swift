public import FoundationEssentials
import StageContainer
public import StageModel
import StageSystem
public import SystemPackage

extension PackStore {
    /// Returns the content of a file of a staged pack, mapped into memory where that is safe.
    ///
    /// Without a pack, all staged packs are one tree in which the first pack in the order of precedence
    /// that has the path wins.
    ///
    /// - Throws: ``PackStoreError/fileNotFound(_:)`` if no staged pack has a file there;
    ///   ``PackStoreError/unreadable(_:_:)`` if it cannot be read.
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
            throw .unreadable(FilePath(url.path), .ioError)
        }
    }

    /// Opens a file of a staged pack for reading; the caller closes it.
    ///
    /// - Throws: As ``contents(at:searchingInPack:)``.
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

    /// Returns where a file or directory of a staged pack is.
    ///
    /// The path is relative to the root of the packs. It cannot leave the pack: `..` is not found, and
    /// links inside a pack were checked when it was unpacked.
    ///
    /// - Throws: ``PackStoreError/fileNotFound(_:)`` if no staged pack has the path.
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
            guard let root = try localURL(for: pack) else { continue }
            let full = FilePath(root.path).pushing(relative)
            if FileStatus.exists(full) { return URL(filePath: full.string) }
        }
        throw .fileNotFound(path)
    }
}
