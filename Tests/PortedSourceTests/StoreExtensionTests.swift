import BackgroundAssets
import ExtensionFoundation
import StoreKit
import Testing

/// The extension that Xcode's template makes for packs that Apple hosts, without its '@main'.
struct DownloaderExtension: StoreDownloaderExtension {
    func shouldDownload(_ assetPack: AssetPack) -> Bool {
        assetPack.downloadSize < 1_000_000
    }
}

/// Files that name Apple's module StoreKit, or the types of its module System.
struct StoreExtensionTests {
    @Test func anExtensionOfTheStoreIsAManagedOne() {
        let program: any ManagedDownloaderExtension = DownloaderExtension()
        #expect(type(of: program) == DownloaderExtension.self)
    }

    @Test func pathsComeWithBackgroundAssets() {
        let path: FilePath = "a/b"
        #expect(path.lastComponent == "b")
    }
}
