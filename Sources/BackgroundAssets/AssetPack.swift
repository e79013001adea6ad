public import Foundation
import StageExtension
import StageModel

/// An asset pack as the manifest offers it.
///
/// Differs from Apple's type in ``isProposed`` and ``stagedVersion``, which that has not, and in
/// languages, which packs here have not.
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

    init(_ pack: ExtensionPack) {
        id = pack.id.text
        version = pack.version
        downloadSize = Int(pack.downloadSize.rawValue)
        userInfo = pack.userInfo.map { Data($0.utf8) }
        isProposed = pack.isProposed
        stagedVersion = pack.stagedVersion
        self.pack = pack
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
