import ArgumentParser
import StageModel
import StagePack
import StageSigning

struct SignCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "sign",
        abstract: "Sign a manifest as it is now.",
        discussion: """
            Writes signed metadata (The Update Framework) beside the manifest: targets metadata that \
            names it, snapshot and timestamp. Run 'stagepack keys init' once before.

            Metadata with fewer signatures than its threshold is kept as a draft in 'metadata.draft', \
            and not published; the holders of further keys run the same command one after the other.
            """
    )

    @Argument(help: "The manifest's file.", completion: .file()) var manifest: String
    @OptionGroup(title: "Keys") var signing: SigningOptions
    @Flag(help: "Also sign new root metadata, which 'stagepack rotate' has made.") var root = false
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        try signing.requireKeys()
        var tasks = SigningTasks()
        tasks.takesManifest = true
        tasks.signsRoot = root
        let keyring = try signing.keyring(signing: manifest)
        defer { keyring.finish() }
        let report = try await ManifestFile(manifest).sign(with: keyring, tasks)
        try report.refuseIfNotSigned(by: keyring, isForRoot: root, manifest: manifest)
        // If the keys added a signature but others are missing, an expiry is only a warning.
        if !report.hasSigned || report.drafts.isEmpty { try report.refuseIfExpired() }
        return report.print(asJSON: json)
    }
}

struct RefreshCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "refresh",
        abstract: "Renew signed metadata before it expires.",
        discussion: """
            For a timer. Signs new versions of snapshot and timestamp metadata when half of their time \
            is over, and of targets and root metadata when a third is left, if the keys given suffice. \
            The manifest is not read again: what was signed stays what it is. Before that time it \
            changes nothing.
            """
    )

    @Argument(help: "The manifest's file.", completion: .file()) var manifest: String
    @OptionGroup(title: "Keys") var signing: SigningOptions
    @Flag(help: "Renew snapshot and timestamp also when they are far from their expiry.")
    var force = false
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        try signing.requireKeys()
        var tasks = SigningTasks()
        tasks.renewsAlways = force
        let keyring = try signing.keyring(signing: manifest)
        defer { keyring.finish() }
        let report = try await ManifestFile(manifest).sign(with: keyring, tasks)
        try report.refuseIfStale(keyring, manifest: manifest)
        try report.refuseIfExpired()
        return report.print(asJSON: json)
    }
}

struct RotateCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "rotate",
        abstract: "Change the keys of signed metadata, or renew its root.",
        discussion: """
            Makes the next version of root metadata, which the keys of the version before and its own \
            must sign. Until there are enough signatures it is a draft, which 'stagepack sign --root' \
            adds to, and which another 'rotate' changes. Give the keys of the other roles, too, old \
            and new: then clients can read the repository all the time.

            To replace a lost or stolen key in the roles that it has: --add NEW --remove ID. Without \
            changes the root is renewed.
            """
    )

    @Argument(help: "The manifest's file.", completion: .file()) var manifest: String
    @OptionGroup(title: "Keys") var signing: SigningOptions

    @Option(
        help: ArgumentHelp(
            "Add a key to a role. Default: the roles that --remove takes keys from, or, without --remove, "
                + "all roles. A private or public key in PEM, 'exec:' and the path of a signing program, or the "
                + "'pkcs11:' URI of a key in a token.",
            valueName: "[role=]key"
        ),
        completion: .file()
    )
    var add: [String] = []

    @Option(
        help: ArgumentHelp(
            "Remove a key from a role, or from all roles that have it, by the first digits of its id.",
            valueName: "[role=]id"
        )
    )
    var remove: [String] = []

    @OptionGroup(title: "Root") var options: RootOptions
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        try signing.requireKeys()
        let keyring = try signing.keyring(signing: manifest)
        defer { keyring.finish() }
        var added: [(roles: [SigningRole]?, key: RepositoryKey)] = []
        for argument in add {
            let (roles, reference) = Self.parts(of: argument)
            added.append((roles, try keyring.load(reference)))
        }
        let removed = remove.map { Self.parts(of: $0) }
        let options = options
        let report = try await ManifestFile(manifest).rotate(with: keyring) {
            content throws(SigningError) in
            var left: Set<SigningRole> = []
            for removal in removed { left.formUnion(try Self.roles(of: removal, in: content)) }
            // A key that replaces others gets their roles: one that signs daily must not sign for the root.
            let standard = SigningRole.allCases.filter { removed.isEmpty || left.contains($0) }
            for (roles, key) in added {
                for role in roles ?? standard { content.add(key, to: role) }
            }
            for removal in removed {
                for role in try Self.roles(of: removal, in: content) {
                    try content.remove(keyWithID: removal.value, from: role)
                }
            }
            options.apply(to: &content)
        }
        return report.print(asJSON: json)
    }

    /// Splits `role=value`.
    private static func parts(of argument: String) -> (roles: [SigningRole]?, value: String) {
        guard let parts = RoleValue(argument: argument) else { return (nil, argument) }
        return ([parts.role], parts.value)
    }

    /// Returns the roles that a key is to be removed from: the named one, or all that have it.
    private static func roles(
        of removal: (roles: [SigningRole]?, value: String),
        in content: RootContent
    ) throws(SigningError) -> [SigningRole] {
        if let roles = removal.roles { return roles }
        let id = removal.value.lowercased()
        let roles = SigningRole.allCases.filter { role in
            content.roles[role]?.keys.contains { $0.id.hasPrefix(id) } ?? false
        }
        guard !roles.isEmpty else { throw .unknownKey(id: removal.value) }
        return roles
    }
}

extension SigningOptions {
    /// Refuses a command line without a key.
    func requireKeys() throws(CommandFailure) {
        if keys.isEmpty { throw .usage("expected '--key KEYFILE', found no key") }
    }
}

extension SigningStateReport {
    /// Prints the state, unless `--quiet` was given, and the remaining steps to standard error.
    func print(asJSON json: Bool) -> ExitStatus {
        Console.print(change: self, asJSON: json)
        if !json { printRemainingSteps() }
        return .success
    }

    /// Fails if the snapshot or timestamp metadata is near its expiry and the keys given did not suffice, so
    /// that a timer does not fail silently.
    func refuseIfStale(_ keyring: Keyring, manifest: String) throws(CommandFailure) {
        let stale = roles.first { $0.isClose && [.snapshot, .timestamp].contains($0.role) }
        guard let stale, let draft = drafts.first(where: { $0.role == stale.role }) else { return }
        let given = keyring.signers.map(\.key.id)
        throw CommandFailure(
            .noSigner(role: stale.role, expected: draft.missing, given: given),
            manifest: manifest
        )
    }

    /// Fails if published metadata has expired, so that clients refuse it.
    func refuseIfExpired() throws(CommandFailure) {
        guard let role = roles.first(where: \.isExpired) else { return }
        throw CommandFailure(
            status: .packagingFailed,
            message: "\(manifest.forDisplay()): the \(role.role.rawValue) metadata has expired, at "
                + "\(role.expires), and clients refuse it",
            hint: "with the keys of the role: \(renewal(of: role.role))",
            retryAdvice: .never
        )
    }

    /// Fails if none of the keys signed, although signatures are needed; those of root metadata only if `isForRoot`.
    func refuseIfNotSigned(
        by keyring: Keyring,
        isForRoot: Bool,
        manifest: String
    ) throws(CommandFailure) {
        let given = keyring.signers.map(\.key.id)
        let needed = drafts.filter { $0.needed > 0 && (isForRoot || $0.role != .root) }
        guard let first = needed.first, !isChanged, !hasSigned,
            drafts.allSatisfy({ Set($0.signed).isDisjoint(with: given) })
        else { return }
        throw CommandFailure(
            .noSigner(role: first.role, expected: first.missing, given: given),
            manifest: manifest
        )
    }
}
