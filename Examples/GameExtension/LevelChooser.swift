import BackgroundAssets
import Foundation

/// Leaves packs to the policies of the manifest, but for films of another quality than the player's.
///
/// The publisher says in the `userInfo` of a pack which quality it has.
@main
struct LevelChooser: ManagedDownloaderExtension {
    private struct Notes: Decodable {
        var quality: String?
    }

    func shouldDownload(_ assetPack: AssetPack) -> Bool {
        guard let userInfo = assetPack.userInfo,
            let notes = try? JSONDecoder().decode(Notes.self, from: userInfo),
            let quality = notes.quality
        else { return true }
        return quality == chosenQuality
    }

    /// The quality that the player has chosen in the game.
    private var chosenQuality: String {
        let folder = FileManager.default
            .containerURL(forSecurityApplicationGroupIdentifier: "com.example.games")
        guard let file = folder?.appending(path: "quality"),
            let text = try? String(contentsOf: file, encoding: .utf8)
        else { return "hd" }
        return text
    }
}
