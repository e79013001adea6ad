public import Foundation
import StageExtension
import StageModel
import StageSystem
import SystemPackage

/// The asset packs that a manifest offers.
public struct AssetPackManifest: Hashable, Sendable {
    /// The packs.
    public let assetPacks: Set<AssetPack>

    init(_ assetPacks: Set<AssetPack>) { self.assetPacks = assetPacks }

    /// Reads the manifest file that an extension received.
    ///
    /// - Parameters:
    ///   - url: A file in StagePack's manifest format.
    ///   - appGroupID: The group of the application, which the format does not need.
    /// - Throws: An error that describes what is invalid in the file.
    public init(contentsOf url: URL, appGroupID: String) throws {
        let file = try File.open(reading: FilePath(url.path(percentEncoded: false)))
        try self.init(json: try file.readAll(limit: ManifestLimits.byteCount))
    }

    /// Parses a manifest in StagePack's format.
    ///
    /// - Parameters:
    ///   - data: The JSON of the manifest.
    ///   - appGroupID: The group of the application, which the format does not need.
    /// - Throws: An error that describes what is invalid.
    public init(from data: Data, appGroupID: String) throws {
        try self.init(json: Array(data))
    }

    private init(json: [UInt8]) throws {
        let manifest = try Manifest(json: json)
        let known = Dictionary(
            (ExtensionSession.request?.packs ?? []).map { ($0.id, $0) },
            uniquingKeysWith: { first, _ in first }
        )
        assetPacks = Set(
            manifest.packs.map { pack in
                AssetPack(
                    known[pack.id]
                        ?? ExtensionPack(pack, urls: [], stagedVersion: nil, isProposed: false)
                )
            }
        )
    }

    /// Returns the pack with this id, or `nil` if there is none.
    public func assetPack(withID id: String) -> AssetPack? { assetPacks.first { $0.id == id } }

    /// Returns downloads of the packs that the policies would download now, for an extension to return; none in an
    /// application, which calls ``AssetPackManager/ensureLocalAvailability(of:requireLatestVersions:)`` instead.
    public func allDownloads(for request: BAContentRequest?) -> Set<BADownload> {
        Set(assetPacks.filter(\.isProposed).map { $0.download(for: request) })
    }
}
