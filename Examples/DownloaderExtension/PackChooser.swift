import BackgroundAssets
import Foundation

/// Chooses packs by the policies of the manifest, and by what the publisher says of them.
///
/// That is the `userInfo` of a pack:
///
/// - `quality`: such a pack is downloaded only if the user chose that quality. The application writes
///   the choice into the file `quality` of the shared folder; without that it is `hd`.
/// - `firstScreen`: where it is `false`, the first launch does not wait for the pack, even if its policy
///   is essential.
///
/// An essential pack that failed is asked for once more, without the first launch waiting for it.
@main struct PackChooser: BADownloaderExtension {
    /// The publisher's notes for a pack.
    private struct Notes: Decodable {
        var quality: String?
        var firstScreen: Bool?
    }

    private let group = "com.example.aurora"

    func downloads(
        for request: BAContentRequest,
        manifestURL: URL,
        extensionInfo: BAAppExtensionInfo
    ) -> Set<BADownload> {
        do {
            let manifest = try AssetPackManifest(contentsOf: manifestURL, appGroupID: group)
            return Set(
                manifest.assetPacks.compactMap { pack in
                    try? download(of: pack, for: request)
                }
            )
        } catch {
            print("the manifest cannot be read: \(error)")
            return []
        }
    }

    func backgroundDownload(_ failedDownload: BADownload, failedWithError error: any Error) {
        print("\(failedDownload) failed: \(error)")
        guard failedDownload.isEssential else { return }
        do {
            try BADownloadManager.shared.scheduleDownload(failedDownload.removingEssential())
        } catch {
            print("it is not asked for again: \(error)")
        }
    }

    /// Returns the download of a pack, or `nil` if it is not wanted.
    private func download(
        of pack: AssetPack,
        for request: BAContentRequest
    ) throws -> BADownload? {
        guard pack.isProposed else { return nil }
        let notes = try pack.userInfo.map { try JSONDecoder().decode(Notes.self, from: $0) }
        if let quality = notes?.quality, quality != chosenQuality { return nil }
        let download = pack.download(for: request)
        return notes?.firstScreen == false ? download.removingEssential() : download
    }

    /// The quality that the user chose.
    private var chosenQuality: String {
        let folder = FileManager.default
            .containerURL(forSecurityApplicationGroupIdentifier: group)
        // The user cannot choose before the application has run.
        guard let file = folder?.appending(path: "quality"),
            let text = try? String(contentsOf: file, encoding: .utf8)
        else { return "hd" }
        return text.trimmingCharacters(in: .whitespacesAndNewlines)
    }
}
