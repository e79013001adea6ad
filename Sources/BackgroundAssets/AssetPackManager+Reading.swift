public import Foundation
import StagePack
public import SystemPackage

extension AssetPackManager {
    /// Returns the content of a file, mapped into memory if that is safe.
    ///
    /// All staged packs form one tree. If several contain the path, the pack that is first in
    /// ``Configuration/precedence`` wins, then the one whose name is first in byte order.
    ///
    /// - Parameters:
    ///   - path: The path of the file in its pack: relative, without `..`.
    ///   - assetPackID: The pack to search; `nil` for all.
    ///   - options: The options for reading the file.
    /// - Returns: The bytes of the file.
    /// - Throws: ``ManagedBackgroundAssetsError/fileNotFound(at:)`` if no pack contains the file or the path
    ///   leaves the packs; ``ManagedBackgroundAssetsError/assetPackNotFound(withID:)`` if the pack is not
    ///   staged; a `CocoaError` if the path is that of a directory, or the file cannot be read.
    public nonisolated func contents(
        at path: FilePath,
        searchingInAssetPackWithID assetPackID: String? = nil,
        options: Data.ReadingOptions = .mappedIfSafe
    ) throws -> Data {
        try Data(contentsOf: url(for: path, assetPackID: assetPackID), options: options)
    }

    /// Opens a file for reading; the caller closes it, and programs that the process executes do not inherit it.
    ///
    /// The descriptor stays valid after the pack is removed.
    ///
    /// - Throws: ``ManagedBackgroundAssetsError`` like ``contents(at:searchingInAssetPackWithID:options:)``; `Errno` if the
    ///   file cannot be opened.
    public nonisolated func descriptor(
        for path: FilePath,
        searchingInAssetPackWithID assetPackID: String? = nil
    ) throws -> FileDescriptor {
        try FileDescriptor.open(
            FilePath(url(for: path, assetPackID: assetPackID).path(percentEncoded: false)),
            .readOnly,
            options: [.closeOnExec]
        )
    }

    /// Returns the URL of a file or directory in the first pack that contains it.
    ///
    /// Unlike Apple's method it does not merge a directory that several packs have, and throws if no pack has the path.
    ///
    /// The URL is valid until the process ends or removes the pack; another process may get another URL.
    ///
    /// - Throws: ``ManagedBackgroundAssetsError/fileNotFound(at:)`` like
    ///   ``contents(at:searchingInAssetPackWithID:options:)``.
    public nonisolated func url(for path: FilePath) throws -> URL {
        try url(for: path, assetPackID: nil)
    }

    private nonisolated func url(for path: FilePath, assetPackID: String?) throws -> URL {
        let store = try source().store
        // The root exists in each pack.
        guard !path.isEmpty else { throw ManagedBackgroundAssetsError.fileNotFound(at: path) }
        let id = try assetPackID.map { try stagedID($0) }
        do throws(PackStoreError) {
            return try store.url(for: path.string, searchingInPack: id)
        } catch .fileNotFound {
            throw ManagedBackgroundAssetsError.fileNotFound(at: path)
        }
    }
}
