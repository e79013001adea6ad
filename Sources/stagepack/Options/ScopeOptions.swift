import ArgumentParser

/// A command that applies to all registered applications if its options name none.
protocol ScopedSubcommand: SourcedSubcommand {
    /// The option `--all`.
    var scope: ScopeOptions { get }
}

extension ScopedSubcommand {
    mutating func validate() throws { try scope.check(with: source) }
}

/// The option to apply a command to all applications.
struct ScopeOptions: ParsableArguments {
    @Flag(
        help:
            "All registered applications; the default without --app and --container."
    )
    var all = false

    /// Checks that no option names an application or container in addition to `--all`, and that options for one manifest
    /// apply to one.
    func check(with source: SourceOptions) throws {
        guard all else { return try Self.checkOptionsOfOneManifest(source) }
        if source.app != nil || !source.manifest.isEmpty || source.container != nil {
            throw ValidationError("--all excludes --app, --manifest and --container.")
        }
        if source.root != nil || source.applicationVersion != nil {
            throw ValidationError("--all excludes --root and --application-version.")
        }
    }

    /// Refuses options that a command for all applications would ignore.
    ///
    /// A manifest alone determines no container, so the messages do not name `--manifest`.
    private static func checkOptionsOfOneManifest(_ source: SourceOptions) throws {
        guard source.app == nil, source.manifest.isEmpty, source.container == nil else { return }
        if source.root != nil {
            throw ValidationError("--root needs --container.")
        }
        if source.applicationVersion != nil {
            throw ValidationError("--application-version needs --app or --container.")
        }
    }
}
