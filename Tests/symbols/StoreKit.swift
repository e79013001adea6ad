import StoreKit

/// The values that the snippets of 'StoreKit.tsv' use.
final class Snippets {
    var pack: AssetPack { fatalError() }
}
