public import Foundation

// Apple's members for packs in several languages (27.0). Manifests have no languages, and a container serves
// users with different ones: there is no language to select packs by, and a reconciliation would silently do
// nothing. The compiler rejects these members with advice. The variants 'asLocalizedFor:' of reading do not
// exist.
extension AssetPackManager {
    /// Unavailable: packs have no languages here, so the user's languages select no packs.
    @available(*, unavailable, message: "packs have no languages here: name packs by language")
    public var resolvedLanguage: Locale.Language? {
        get { preconditionFailure("unavailable") }
        set { preconditionFailure("unavailable") }
    }

    /// Unavailable: packs have no languages here.
    @available(*, unavailable, message: "packs have no languages here: name packs by language")
    public var locallyAvailableLanguages: Set<Locale.Language> {
        preconditionFailure("unavailable")
    }

    /// Unavailable: packs have no languages here, so a change of languages requires no downloads or removals.
    @available(*, unavailable, message: "load and remove the packs of a language by their names")
    public func reconcilePreferredLanguages() async throws { preconditionFailure("unavailable") }
}

extension AssetPack {
    /// Unavailable: packs have no languages here.
    @available(*, unavailable, message: "packs have no languages here: name packs by language")
    public var language: Locale.Language? { preconditionFailure("unavailable") }
}

extension AssetPackManifest {
    /// Unavailable: packs have no languages here.
    @available(*, unavailable, message: "packs have no languages here: name packs by language")
    public var availableLanguages: Set<Locale.Language> { preconditionFailure("unavailable") }

    /// Unavailable: packs have no languages here.
    @available(*, unavailable, message: "packs have no languages here: name packs by language")
    public var primaryLanguage: Locale.Language? { preconditionFailure("unavailable") }

    /// Unavailable: packs have no languages here.
    @available(*, unavailable, message: "packs have no languages here: name packs by language")
    public var resolvedLanguage: Locale.Language? { preconditionFailure("unavailable") }

    /// Unavailable: packs have no languages here.
    @available(*, unavailable, message: "packs have no languages here: name packs by language")
    public var localizedAssetPacks: Set<AssetPack> { preconditionFailure("unavailable") }

    /// Unavailable: packs have no languages here.
    @available(*, unavailable, message: "packs have no languages here: name packs by language")
    public func localizedAssetPacks(for language: Locale.Language) -> Set<AssetPack> {
        preconditionFailure("unavailable")
    }
}
