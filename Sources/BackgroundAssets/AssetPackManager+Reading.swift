public import Foundation
import StagePack
public import SystemPackage

extension AssetPackManager {
    /// Returns the content of a file, mapped into memory where that is safe.
    ///
    /// All packs that are here are one tree. Where several have a file at the path, the one that is first
    /// in ``Configuration/precedence`` wins, then the one whose name is first in the order of its bytes.
    ///
    /// - Parameters:
    ///   - path: The path of the file in its pack: relative, without `..`.
    ///   - assetPackID: The pack to look in; `nil` for all.
    ///   - options: How the file is read.
    /// - Returns: the bytes of the file.
    /// - Throws: ``ManagedBackgroundAssetsError/fileNotFound(at:)`` if no pack has the file or the path leaves
    ///   the packs; ``ManagedBackgroundAssetsError/assetPackNotFound(withID:)`` if the pack is not here.
    public nonisolated func contents(
        at path: FilePath,
        searchingInAssetPackWithID assetPackID: String? = nil,
        options: Data.ReadingOptions = .mappedIfSafe
    ) throws -> Data {
        try Data(contentsOf: url(for: path, assetPackID), options: options)
    }

    /// Opens a file for reading; the caller closes it.
    ///
    /// - Throws: As ``contents(at:searchingInAssetPackWithID:options:)``.
    public nonisolated func descriptor(
        for path: FilePath,
        searchingInAssetPackWithID assetPackID: String? = nil
    ) throws -> FileDescriptor {
        try FileDescriptor.open(
            FilePath(url(for: path, assetPackID).path(percentEncoded: false)),
            .readOnly,
            options: [.closeOnExec]
        )
    }

    /// Returns where a file or directory is, of the first pack that has it.
    ///
    /// The URL is good until the process ends or the pack is removed by it; later it may be another one.
    ///
    /// - Throws: ``ManagedBackgroundAssetsError/fileNotFound(at:)`` as
    ///   ``contents(at:searchingInAssetPackWithID:options:)`` does.
    public nonisolated func url(for path: FilePath) throws -> URL { try url(for: path, nil) }

    private nonisolated func url(for path: FilePath, _ assetPackID: String?) throws -> URL {
        let store = try source().store
        // Of the root there is one in each pack.
        guard !path.isEmpty else { throw ManagedBackgroundAssetsError.fileNotFound(at: path) }
        let id = try assetPackID.map { try stagedID($0) }
        do throws(PackStoreError) {
            return try store.url(for: path.string, searchingInPack: id)
        } catch .fileNotFound {
            throw ManagedBackgroundAssetsError.fileNotFound(at: path)
        }
    }
}
