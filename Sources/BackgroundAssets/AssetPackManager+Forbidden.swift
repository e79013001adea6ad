public import Foundation

// Apple's members for packs in several languages. A manifest names no languages, so each would do nothing without a word;
// here the compiler says what to do instead.
extension AssetPackManager {
    /// Refuses: packs have no languages here.
    @available(*, unavailable, message: "packs have no languages here: name packs by language")
    public var resolvedLanguage: Locale.Language? { preconditionFailure("unavailable") }

    /// Refuses: packs have no languages here.
    @available(*, unavailable, message: "packs have no languages here: name packs by language")
    public var locallyAvailableLanguages: Set<Locale.Language> {
        preconditionFailure("unavailable")
    }

    /// Refuses: packs have no languages here.
    @available(*, unavailable, message: "load and remove the packs of a language by their names")
    public func reconcilePreferredLanguages() async throws { preconditionFailure("unavailable") }
}
