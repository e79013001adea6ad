import Foundation
import StageContainer
import StageModel
import StagePack
import StageSystem
import SystemPackage

extension AssetPackManager {
    /// What the manifest offers that was accepted last; the server is asked where there is none.
    ///
    /// ``checkForUpdates()`` asks the server in any case, and so do the timers of the system.
    public var manifest: AssetPackManifest {
        get async throws {
            let source = try source()
            if let packs = try source.assetPacks() { return AssetPackManifest(packs) }
            try await source.store.refresh()
            return AssetPackManifest(try source.assetPacks() ?? [])
        }
    }

    /// The packs of ``manifest``.
    public var allAssetPacks: Set<AssetPack> {
        get async throws { try await manifest.assetPacks }
    }

    /// Returns a pack of the manifest, for which the server is asked where the known one has no such pack.
    ///
    /// - Throws: ``ManagedBackgroundAssetsError/assetPackNotFound(withID:)`` if the server's has none either;
    ///   that the server does not answer.
    public func assetPack(withID assetPackID: String) async throws -> AssetPack {
        let source = try source()
        let id = try Self.packID(assetPackID)
        if let pack = try source.offer(of: id) { return pack }
        try await source.store.refresh()
        if let pack = try source.offer(of: id) { return pack }
        throw ManagedBackgroundAssetsError.assetPackNotFound(withID: assetPackID)
    }

    /// Compares what is here with a pack.
    ///
    /// Asks no server: ``AssetPack/Status/updateAvailable`` and ``AssetPack/Status/downloadAvailable`` are
    /// what the manifest that was accepted last tells.
    public func status(relativeTo assetPack: AssetPack) async throws -> AssetPack.Status {
        let source = try source()
        return try status(of: assetPack, Self.packID(assetPack.id), source)
    }

    /// Asks the server for the manifest, and compares what is here with what it offers.
    ///
    /// - Throws: ``ManagedBackgroundAssetsError/assetPackNotFound(withID:)`` if the pack is neither offered
    ///   nor here; that the server does not answer.
    public func status(
        ofAssetPackWithID assetPackID: String
    ) async throws -> AssetPack.Status {
        let source = try source()
        let id = try Self.packID(assetPackID)
        try await source.store.refresh()
        let status = try status(of: source.offer(of: id), id, source)
        guard status != .obsolete else {
            throw ManagedBackgroundAssetsError.assetPackNotFound(withID: assetPackID)
        }
        return status
    }

    private func status(
        of pack: AssetPack?,
        _ id: PackID,
        _ source: PackSource
    ) throws -> AssetPack.Status {
        var status = AssetPack.Status(
            of: pack,
            staged: try source.store.currentGeneration(of: id),
            offer: try source.offer(of: id)
        )
        if status.contains(.downloaded), try source.hasOwnFormat() { status.remove(.obsolete) }
        if isDownloading(id) { status.insert(.downloading) }
        return status
    }

    /// Returns what is known of a pack without asking anybody: whether it is here or being fetched, and
    /// whether the manifest that was accepted last offers another version or none.
    ///
    /// That nothing is known, of a pack that does not exist for example, is the empty status.
    public func localStatus(ofAssetPackWithID assetPackID: String) async -> AssetPack.Status {
        do {
            let source = try source()
            let id = try Self.packID(assetPackID)
            var status = try status(of: source.offer(of: id), id, source)
            // Nothing is obsolete as long as there is no manifest.
            if try source.offers() == nil { status.remove(.obsolete) }
            let isHere = status.contains(.downloaded)
            return status.intersection(
                isHere ? [.downloaded, .downloading, .outOfDate, .obsolete] : .downloading
            )
        } catch {
            return []
        }
    }

    /// Returns whether some version of the pack is here, at the cost of a readlink(2); `false` without a
    /// configuration.
    public nonisolated func assetPackIsAvailableLocally(withID assetPackID: String) -> Bool {
        // Whatever cannot be looked at is not available.
        (try? stagedID(assetPackID)) != nil
    }

    /// Returns the version of the pack that is here.
    ///
    /// - Throws: ``ManagedBackgroundAssetsError/assetPackNotFound(withID:)`` if none is.
    public nonisolated func localVersion(
        ofAssetPackWithID assetPackID: String
    ) throws -> Int {
        guard let record = try source().store.record(of: Self.packID(assetPackID)) else {
            throw ManagedBackgroundAssetsError.assetPackNotFound(withID: assetPackID)
        }
        return record.version
    }

    /// Returns the bytes that the files of the pack have, or take on disk: then every file is looked at.
    ///
    /// - Throws: ``ManagedBackgroundAssetsError/assetPackNotFound(withID:)`` if the pack is not here.
    public func localSize(
        ofAssetPackWithID assetPackID: String,
        calculationMethod: SizeCalculationMethod
    ) async throws -> Int64 {
        let store = try source().store
        let id = try Self.packID(assetPackID)
        guard let url = try store.localURL(for: id), let record = try store.record(of: id) else {
            throw ManagedBackgroundAssetsError.assetPackNotFound(withID: assetPackID)
        }
        switch calculationMethod {
        case .logical: return Int64(record.installedSize.rawValue)
        case .allocated:
            let path = FilePath(url.path(percentEncoded: false))
            return try await withBlockingThread { () throws(FileError) in
                try Directory.open(path).allocatedSize()
            }
        }
    }

    /// The name of a pack that is here.
    ///
    /// - Throws: ``ManagedBackgroundAssetsError/assetPackNotFound(withID:)`` if it is not.
    nonisolated func stagedID(_ text: String) throws -> PackID {
        let id = try Self.packID(text)
        guard try source().store.currentGeneration(of: id) != nil else {
            throw ManagedBackgroundAssetsError.assetPackNotFound(withID: text)
        }
        return id
    }
}

/// How the size of a pack that is here is counted.
public enum SizeCalculationMethod: Int, Hashable, Sendable {
    /// The bytes in the files.
    case logical = 0
    /// The bytes that the file system has allocated for the files.
    case allocated = 1
}

extension Directory {
    /// The bytes that are allocated for the files below.
    fileprivate func allocatedSize() throws(FileError) -> Int64 {
        var size: Int64 = 0
        for entry in try entries() {
            let name = FilePath(entry.name)
            if entry.kind == .directory {
                size += try directory(name)?.allocatedSize() ?? 0
            } else {
                size += try status(name)?.allocatedSize ?? 0
            }
        }
        return size
    }
}
