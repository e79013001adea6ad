public import Foundation

// Apple's members for packs in several languages (27.0). A manifest names no languages, and a container serves users with
// different ones: there is no language to resolve packs by, and a reconciliation would download and remove nothing without
// a word. The compiler refuses them, and says what to do instead. The variants 'asLocalizedFor:' of reading do not exist.
extension AssetPackManager {
    /// Refuses: packs have no languages here, so none of the user's languages selects packs.
    @available(*, unavailable, message: "packs have no languages here: name packs by language")
    public var resolvedLanguage: Locale.Language? {
        get { preconditionFailure("unavailable") }
        set { preconditionFailure("unavailable") }
    }

    /// Refuses: packs have no languages here.
    @available(*, unavailable, message: "packs have no languages here: name packs by language")
    public var locallyAvailableLanguages: Set<Locale.Language> {
        preconditionFailure("unavailable")
    }

    /// Refuses: packs have no languages here, so there is nothing to download or remove after a change of languages.
    @available(*, unavailable, message: "load and remove the packs of a language by their names")
    public func reconcilePreferredLanguages() async throws { preconditionFailure("unavailable") }
}

extension AssetPack {
    /// Refuses: packs have no languages here.
    @available(*, unavailable, message: "packs have no languages here: name packs by language")
    public var language: Locale.Language? { preconditionFailure("unavailable") }
}

extension AssetPackManifest {
    /// Refuses: packs have no languages here.
    @available(*, unavailable, message: "packs have no languages here: name packs by language")
    public var availableLanguages: Set<Locale.Language> { preconditionFailure("unavailable") }

    /// Refuses: packs have no languages here.
    @available(*, unavailable, message: "packs have no languages here: name packs by language")
    public var primaryLanguage: Locale.Language? { preconditionFailure("unavailable") }

    /// Refuses: packs have no languages here.
    @available(*, unavailable, message: "packs have no languages here: name packs by language")
    public var resolvedLanguage: Locale.Language? { preconditionFailure("unavailable") }

    /// Refuses: packs have no languages here.
    @available(*, unavailable, message: "packs have no languages here: name packs by language")
    public var localizedAssetPacks: Set<AssetPack> { preconditionFailure("unavailable") }

    /// Refuses: packs have no languages here.
    @available(*, unavailable, message: "packs have no languages here: name packs by language")
    public func localizedAssetPacks(for language: Locale.Language) -> Set<AssetPack> {
        preconditionFailure("unavailable")
    }
}
