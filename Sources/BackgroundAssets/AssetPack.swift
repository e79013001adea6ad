public import Foundation
import StageContainer
import StageExtension
import StageModel

/// An asset pack as the manifest offers it.
///
/// Differs from Apple's type in ``isProposed`` and ``stagedVersion``, which that has not, and in
/// languages, which packs here have not. Packs are equal if they are of one name, version, size and
/// ``userInfo``: what is staged makes no difference.
public struct AssetPack: Hashable, Identifiable, Sendable {
    /// The name of the pack.
    public let id: String
    /// The version that the manifest offers.
    public let version: Int
    /// The size of the pack's archive in bytes.
    public let downloadSize: Int
    /// What the publisher says of the pack, JSON; `nil` for nothing.
    public let userInfo: Data?
    /// Whether the pack would be downloaded now if there were no extension.
    public let isProposed: Bool
    /// The version that is staged; `nil` if none is.
    public let stagedVersion: Int?

    private let pack: ExtensionPack
    /// The digest of the archive; `nil` in an extension, which is not told.
    private let archiveDigest: Digest?

    init(_ pack: ExtensionPack, archiveDigest: Digest? = nil) {
        id = pack.id.text
        version = pack.version
        downloadSize = Int(pack.downloadSize.rawValue)
        userInfo = pack.userInfo.map { Data($0.utf8) }
        isProposed = pack.isProposed
        stagedVersion = pack.stagedVersion
        self.pack = pack
        self.archiveDigest = archiveDigest
    }

    /// Makes what an application sees of a pack of a manifest.
    init(_ pack: Pack, stagedVersion: Int?) {
        self.init(
            ExtensionPack(pack, urls: [], stagedVersion: stagedVersion, isProposed: false),
            archiveDigest: pack.contentDigest
        )
    }

    /// Whether a generation holds this version of the pack.
    ///
    /// Digests decide, where there is one: a pack published twice under one version is two packs.
    func isHeld(by generation: GenerationName) -> Bool {
        guard let content = generation.content, content.version == version else { return false }
        return archiveDigest.map { $0 == content.archiveDigest } ?? true
    }

    /// Returns a download of the pack.
    ///
    /// It is essential if the pack's policy says so for `request`, and never for `nil` or a periodic
    /// request.
    public func download(for request: BAContentRequest?) -> BADownload {
        let isEssential =
            switch (pack.policy, request) {
            case (.essential(let events), .install): events.contains(.firstInstallation)
            case (.essential(let events), .update): events.contains(.subsequentUpdate)
            default: false
            }
        return BADownload.made(
            of: .pack(pack.id, essential: isEssential, priority: nil),
            .created
        )
    }
}

extension AssetPack {
    /// Whether the two are the same version of one pack.
    public static func == (left: AssetPack, right: AssetPack) -> Bool {
        left.id == right.id && left.version == right.version
            && left.downloadSize == right.downloadSize && left.userInfo == right.userInfo
    }

    /// Hashes the name and the version.
    public func hash(into hasher: inout Hasher) {
        hasher.combine(id)
        hasher.combine(version)
    }
}
