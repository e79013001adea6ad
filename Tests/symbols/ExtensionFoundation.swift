import ExtensionFoundation

/// The place of the snippets of 'ExtensionFoundation.tsv'.
final class Snippets {}
