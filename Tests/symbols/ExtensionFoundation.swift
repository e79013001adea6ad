import ExtensionFoundation

/// The class that contains the snippets of 'ExtensionFoundation.tsv'.
final class Snippets {}
