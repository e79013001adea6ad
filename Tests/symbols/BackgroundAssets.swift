import BackgroundAssets
import Foundation

/// The values that the snippets of 'BackgroundAssets.tsv' use.
final class Snippets {
    var manager: BADownloadManager { fatalError() }
    var managerDelegate: any BADownloadManagerDelegate { fatalError() }
    var download: BADownload { fatalError() }
    var error: BAError { fatalError() }
    var info: BAAppExtensionInfo { fatalError() }
    var url: URL { fatalError() }
    var request: URLRequest { fatalError() }
    var challenge: URLAuthenticationChallenge { fatalError() }
    var packs: AssetPackManager { fatalError() }
    var pack: AssetPack { fatalError() }
    var manifest: AssetPackManifest { fatalError() }
    var unavailable: AssetPackManager.LocalAvailabilityError { fatalError() }
    var file: FilePath { fatalError() }
    var language: Locale.Language { fatalError() }
    var chooser: any BADownloaderExtension { fatalError() }
    var managedChooser: any ManagedDownloaderExtension { fatalError() }
}
