import Foundation
import StageContainer
import StageModel
import StagePack
import StageSystem
import SystemPackage

extension AssetPackManager {
    /// The manifest that was accepted last, or the server's if there is none.
    ///
    /// ``checkForUpdates()`` always requests the server's manifest, and so do the system's timers. Throws an error if no
    /// manifest is stored and the server does not respond.
    public var manifest: AssetPackManifest {
        get async throws {
            let source = try source()
            if let packs = try await source.assetPacks() { return AssetPackManifest(packs) }
            try await source.store.refresh()
            return AssetPackManifest(try await source.assetPacks() ?? [])
        }
    }

    /// The packs of ``manifest``.
    public var allAssetPacks: Set<AssetPack> {
        get async throws { try await manifest.assetPacks }
    }

    /// Returns a pack of the manifest; requests the server's manifest if the known one does not contain the
    /// pack.
    ///
    /// - Throws: ``ManagedBackgroundAssetsError/assetPackNotFound(withID:)`` if the server's manifest does
    ///   not contain it either; an error if the server does not respond.
    public func assetPack(withID assetPackID: String) async throws -> AssetPack {
        let source = try source()
        let id = try Self.packID(assetPackID)
        if let pack = try await source.state(of: id).offer { return pack }
        try await source.store.refresh()
        if let pack = try await source.state(of: id).offer { return pack }
        throw ManagedBackgroundAssetsError.assetPackNotFound(withID: assetPackID)
    }

    /// Compares the staged version with a pack.
    ///
    /// Sends no request: ``AssetPack/Status/updateAvailable`` and ``AssetPack/Status/downloadAvailable``
    /// refer to the manifest that was accepted last. A pack that is neither offered nor staged is
    /// ``AssetPack/Status/obsolete``.
    ///
    /// - Throws: An error if a container cannot be read.
    public func status(relativeTo assetPack: AssetPack) async throws -> AssetPack.Status {
        let source = try source()
        let id = try Self.packID(assetPack.id)
        let state = try await source.state(of: id)
        return status(of: assetPack, id: id, state: state)
    }

    /// Requests the manifest from the server, and compares the staged version with the offered one.
    ///
    /// - Throws: ``ManagedBackgroundAssetsError/assetPackNotFound(withID:)`` if the pack is neither offered
    ///   nor staged; an error if the server does not respond.
    public func status(
        ofAssetPackWithID assetPackID: String
    ) async throws -> AssetPack.Status {
        let source = try source()
        let id = try Self.packID(assetPackID)
        try await source.store.refresh()
        let state = try await source.state(of: id)
        let status = status(of: state.offer, id: id, state: state)
        guard status != .obsolete else {
            throw ManagedBackgroundAssetsError.assetPackNotFound(withID: assetPackID)
        }
        return status
    }

    private func status(
        of pack: AssetPack?,
        id: PackID,
        state: PackSource.PackState
    ) -> AssetPack.Status {
        var status = AssetPack.Status(
            of: pack,
            staged: state.staged,
            offer: state.offer,
            isKept: state.isKept
        )
        if state.staged != nil, state.offers.hasOwnFormat { status.remove(.obsolete) }
        if isDownloading(id) { status.insert(.downloading) }
        return status
    }

    /// Returns the status of a pack without sending a request: whether it is staged or being downloaded, and
    /// whether the manifest that was accepted last offers another version or none.
    ///
    /// Returns an empty status if nothing is known, for example of a pack that does not exist.
    public func localStatus(ofAssetPackWithID assetPackID: String) async -> AssetPack.Status {
        do {
            let source = try source()
            let id = try Self.packID(assetPackID)
            let state = try await source.state(of: id)
            var status = status(of: state.offer, id: id, state: state)
            // Without a manifest, no pack is obsolete.
            if state.offers.packs == nil { status.remove(.obsolete) }
            let isHere = status.contains(.downloaded)
            return status.intersection(
                isHere ? [.downloaded, .downloading, .outOfDate, .obsolete] : .downloading
            )
        } catch {
            return []
        }
    }

    /// Returns whether a version of the pack is staged, at the cost of a few system calls; `false` without a
    /// configuration.
    public nonisolated func assetPackIsAvailableLocally(withID assetPackID: String) -> Bool {
        // An error counts as not available.
        (try? stagedID(assetPackID)) != nil
    }

    /// Returns the staged version of the pack.
    ///
    /// - Throws: ``ManagedBackgroundAssetsError/assetPackNotFound(withID:)`` if it is not staged.
    public nonisolated func localVersion(
        ofAssetPackWithID assetPackID: String
    ) throws -> Int {
        guard let record = try source().store.record(of: Self.packID(assetPackID)) else {
            throw ManagedBackgroundAssetsError.assetPackNotFound(withID: assetPackID)
        }
        return record.version
    }

    /// Returns the size of the pack's files in bytes, or their size on disk, which reads the status of every file.
    ///
    /// The version is not deleted meanwhile; afterwards it may be, as the pack does not count as used.
    ///
    /// - Throws: ``ManagedBackgroundAssetsError/assetPackNotFound(withID:)`` if the pack is not staged.
    public func localSize(
        ofAssetPackWithID assetPackID: String,
        calculationMethod: SizeCalculationMethod
    ) async throws -> Int64 {
        let store = try source().store
        let id = try Self.packID(assetPackID)
        let notFound = ManagedBackgroundAssetsError.assetPackNotFound(withID: assetPackID)
        switch calculationMethod {
        case .logical:
            guard let record = try store.record(of: id) else { throw notFound }
            return Int64(record.installedSize.rawValue)
        case .allocated:
            guard let lease = try store.temporaryLease(of: id) else { throw notFound }
            return try await withBlockingThread { () throws(FileError) -> Int64 in
                defer { withExtendedLifetime(lease) {} }
                let space = try Directory.open(lease.content).occupiedSpace()
                return (space.size - space.directories).rawValue
            }
        }
    }

    /// Returns the id of a staged pack.
    ///
    /// - Throws: ``ManagedBackgroundAssetsError/assetPackNotFound(withID:)`` if it is not staged.
    nonisolated func stagedID(_ text: String) throws -> PackID {
        let id = try Self.packID(text)
        guard try source().store.currentGeneration(of: id) != nil else {
            throw ManagedBackgroundAssetsError.assetPackNotFound(withID: text)
        }
        return id
    }
}

/// The way in which the size of a staged pack is calculated.
@nonexhaustive(warn)
public enum SizeCalculationMethod: Int, Hashable, Sendable {
    /// The sum of the file sizes in bytes.
    case logical = 0
    /// The bytes that the file system has allocated for the files.
    case allocated = 1
}
