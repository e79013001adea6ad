public import Foundation
import StageContainer
import StageExtension
import StageModel

/// An asset pack as the manifest offers it.
///
/// Adds ``isProposed`` and ``stagedVersion`` to Apple's type, and lacks its languages, which packs do not
/// have here. Packs are equal if their name, version, size and ``userInfo`` are equal; the staged version does not matter.
public struct AssetPack: Hashable, Identifiable, Sendable {
    /// The name of the pack.
    public let id: String
    /// The version that the manifest offers.
    public let version: Int
    /// The download size of the pack's archive in bytes.
    public let downloadSize: Int
    /// The publisher's data for the application, JSON; `nil` for none.
    public let userInfo: Data?
    /// Indicates whether the policies would download the pack now, without an extension.
    public let isProposed: Bool
    /// The staged version; `nil` if there is none.
    public let stagedVersion: Int?

    private let pack: ExtensionPack
    /// The content digest of the offered version; `nil` in an extension, which does not receive it.
    private let contentDigest: Digest?

    init(_ pack: ExtensionPack, contentDigest: Digest? = nil) {
        id = pack.id.text
        version = pack.version
        downloadSize = Int(pack.downloadSize.rawValue)
        userInfo = pack.userInfo.map { Data($0.utf8) }
        isProposed = pack.isProposed
        stagedVersion = pack.stagedVersion
        self.pack = pack
        self.contentDigest = contentDigest
    }

    /// Creates the application's view of a pack of a manifest.
    init(_ pack: Pack, stagedVersion: Int?) {
        self.init(
            ExtensionPack(pack, urls: [], stagedVersion: stagedVersion, isProposed: false),
            contentDigest: pack.contentDigest
        )
    }

    /// Returns whether a generation contains this version of the pack.
    ///
    /// Compares digests if they are known: a version that was published twice with different content is two
    /// packs.
    func isHeld(by generation: GenerationName) -> Bool {
        guard let content = generation.content, content.version == version else { return false }
        return contentDigest.map { $0 == content.contentDigest } ?? true
    }

    /// Returns a download of the pack for an extension to return or schedule.
    ///
    /// ``BADownloadManager`` refuses it in an application, which calls
    /// ``AssetPackManager/ensureLocalAvailability(of:requireLatestVersion:)`` instead. It is essential if the pack's
    /// policy is essential for `request`, and never for `nil` or a periodic request.
    public func download(for request: BAContentRequest?) -> BADownload {
        let isEssential =
            switch (pack.policy, request) {
            case (.essential(let events), .install): events.contains(.firstInstallation)
            case (.essential(let events), .update): events.contains(.subsequentUpdate)
            default: false
            }
        return BADownload.made(
            of: .pack(pack.id, essential: isEssential, priority: nil),
            state: .created
        )
    }
}

extension AssetPack {
    /// Returns whether both are the same version of a pack.
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
