@_exported public import BackgroundAssets

/// A downloader extension of an application whose packs Apple hosts on its platforms.
///
/// Here the packs are those of the manifest that the registration names, so it is a `ManagedDownloaderExtension`. Nothing
/// else of Apple's StoreKit is in this module.
public protocol StoreDownloaderExtension: ManagedDownloaderExtension {}
