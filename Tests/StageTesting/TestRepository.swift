import StageDigest
package import StageModel
package import StageTrust

/// A repository in memory, whose roles a test changes and publishes.
package struct TestRepository {
    /// A role that signs, and its state.
    package struct Role {
        package var keys: [SigningKey]
        package var threshold = 1
        package var version = 0
        package var expiry = TestRepository.now + .days(30)
        /// The signing keys, if they differ from the role's.
        package var signers: [SigningKey]?
        /// Changes the signed value before it is signed.
        package var edit: (inout JSONTree) -> Void = { _ in }
        /// Changes the file after it is signed.
        package var forge: (inout JSONTree) -> Void = { _ in }

        /// Creates a role that has published nothing yet.
        package init(
            keys: [SigningKey],
            threshold: Int = 1,
            expiry: MetadataTime = TestRepository.now + .days(30)
        ) {
            self.keys = keys
            self.threshold = threshold
            self.expiry = expiry
        }
    }

    /// A delegation by a targets role.
    package struct TestDelegation {
        package var role: String
        package var paths: [String] = ["*"]
        package var prefixes: [String]?
        package var isTerminating = false

        /// Creates a delegation, by default of all paths.
        package init(
            role: String,
            paths: [String] = ["*"],
            prefixes: [String]? = nil,
            isTerminating: Bool = false
        ) {
            self.role = role
            self.paths = paths
            self.prefixes = prefixes
            self.isTerminating = isTerminating
        }
    }

    /// The time of tests that set the clock: 2026-01-01T00:00:00Z.
    package static let now = MetadataTime(secondsSince1970: 1_767_225_600)

    package var root: Role
    package var timestamp: Role
    package var snapshot: Role
    /// The top-level role `targets` and the delegated ones.
    package var targets: [String: Role]
    /// The contents of targets, by role and path.
    package var contents: [String: [String: [UInt8]]] = [:]
    /// The delegations of a role, in order.
    package var delegations: [String: [TestDelegation]] = [:]
    package var isConsistent = true
    /// The snapshot and the timestamp list lengths and digests.
    package var listsDigests = false
    /// Keys that the root lists in addition to those of roles.
    package var extraKeys: [(id: String, tree: JSONTree)] = []
    /// The version of the snapshot in the timestamp, if it differs from the snapshot's.
    package var listedSnapshot: Int?
    /// The versions of roles in the snapshot, where they differ from the roles'.
    package var listedTargets: [String: Int?] = [:]
    /// Every file published, by its path.
    package private(set) var files: [String: [UInt8]] = [:]
    private var latest: [String: [UInt8]] = [:]

    /// Publishes the first version of all roles.
    package init(
        expiry: MetadataTime = TestRepository.now + .days(30),
        contents: [String: [UInt8]] = [:]
    ) throws {
        root = Role(keys: [try SigningKey()], expiry: expiry)
        timestamp = Role(keys: [try SigningKey()], expiry: expiry)
        snapshot = Role(keys: [try SigningKey()], expiry: expiry)
        targets = ["targets": Role(keys: [try SigningKey()], expiry: expiry)]
        if !contents.isEmpty { self.contents["targets"] = contents }
        try publish()
    }

    /// The root of version 1, which clients ship with.
    package var firstRoot: [UInt8] { files["1.root.json"] ?? [] }

    /// Publishes new versions of roles: by default of all.
    package mutating func publish(_ roles: [RoleName]? = nil) throws {
        let delegated = try targets.keys.sorted().map { try Self.name($0) }
        for role in roles ?? [.root] + delegated + [.snapshot, .timestamp] {
            switch role {
            case .root:
                root.version += 1
                try write(rootTree(), of: role, root)
            case .timestamp:
                timestamp.version += 1
                try write(timestampTree(), of: role, timestamp)
            case .snapshot:
                snapshot.version += 1
                try write(snapshotTree(), of: role, snapshot)
            default:
                targets[role.text]?.version += 1
                guard let state = targets[role.text] else { continue }
                try write(targetsTree(role.text, state), of: role, state)
            }
        }
    }

    /// Replaces a published file.
    package mutating func replace(_ path: String, with bytes: [UInt8]?) { files[path] = bytes }

    package static func name(_ text: String) throws -> RoleName {
        text == "targets" ? .targets : try RoleName(delegated: text)
    }

    private mutating func write(_ tree: JSONTree, of role: RoleName, _ state: Role) throws {
        var signed = tree
        state.edit(&signed)
        let message = try signed.canonicalBytes()
        var signatures: [JSONTree] = []
        for key in state.signers ?? state.keys {
            signatures.append(
                .object([
                    .init("keyid", .string(key.id)),
                    .init("sig", .string(try key.signature(of: message))),
                ])
            )
        }
        var file = JSONTree.object([
            .init("signatures", .array(signatures)), .init("signed", signed),
        ])
        state.forge(&file)
        let bytes = Array(file.text.utf8)
        latest[role.text] = bytes
        if role == .root || (isConsistent && role != .timestamp) {
            files["\(state.version).\(role.fileName)"] = bytes
        } else {
            files[role.fileName] = bytes
        }
    }

    private func header(_ type: String, _ state: Role) -> [JSONTree.Member] {
        [
            .init("_type", .string(type)),
            .init("spec_version", .string("1.0.34")),
            .init("version", .integer(Int64(state.version))),
            .init("expires", .string(state.expiry.description)),
        ]
    }

    private func rootTree() -> JSONTree {
        let roles: [(String, Role?)] = [
            ("root", root), ("timestamp", timestamp), ("snapshot", snapshot),
            ("targets", targets["targets"]),
        ]
        var keys: [JSONTree.Member] = extraKeys.map { .init($0.id, $0.tree) }
        var entries: [JSONTree.Member] = []
        for case (let name, let role?) in roles {
            for key in role.keys where !keys.contains(where: { $0.name == key.id }) {
                keys.append(.init(key.id, key.tree))
            }
            entries.append(.init(name, Self.entry(role)))
        }
        return .object(
            header("root", root) + [
                .init("consistent_snapshot", .boolean(isConsistent)),
                .init("keys", .object(keys)), .init("roles", .object(entries)),
            ]
        )
    }

    private static func entry(_ role: Role) -> JSONTree {
        .object([
            .init("keyids", .array(role.keys.map { .string($0.id) })),
            .init("threshold", .integer(Int64(role.threshold))),
        ])
    }

    private func timestampTree() -> JSONTree {
        let file = description(of: "snapshot", version: listedSnapshot ?? snapshot.version)
        return .object(
            header("timestamp", timestamp) + [
                .init("meta", .object([.init("snapshot.json", file)]))
            ]
        )
    }

    private func snapshotTree() -> JSONTree {
        var files: [JSONTree.Member] = []
        for (name, role) in targets {
            guard let version = listedTargets[name] ?? role.version else { continue }
            files.append(.init("\(name).json", description(of: name, version: version)))
        }
        return .object(header("snapshot", snapshot) + [.init("meta", .object(files))])
    }

    private func description(of role: String, version: Int) -> JSONTree {
        var tree = JSONTree.object([.init("version", .integer(Int64(version)))])
        if listsDigests, let bytes = latest[role] {
            tree["length"] = .integer(Int64(bytes.count))
            tree["hashes"] = Self.digests(of: bytes)
        }
        return tree
    }

    private static func digests(of bytes: [UInt8]) -> JSONTree {
        .object([.init("sha256", .string(Digest(of: bytes).description))])
    }

    private func targetsTree(_ name: String, _ state: Role) throws -> JSONTree {
        var entries: [JSONTree.Member] = []
        for (path, content) in contents[name] ?? [:] {
            entries.append(
                .init(
                    path,
                    .object([
                        .init("length", .integer(Int64(content.count))),
                        .init("hashes", Self.digests(of: content)),
                    ])
                )
            )
        }
        var tree = JSONTree.object(
            header("targets", state) + [.init("targets", .object(entries))]
        )
        guard let delegations = delegations[name] else { return tree }
        var keys: [JSONTree.Member] = []
        var roles: [JSONTree] = []
        for delegation in delegations {
            guard let role = targets[delegation.role] else { continue }
            var entry = Self.entry(role)
            entry["name"] = .string(delegation.role)
            entry["terminating"] = .boolean(delegation.isTerminating)
            let paths = (delegation.prefixes ?? delegation.paths).map { JSONTree.string($0) }
            entry[delegation.prefixes == nil ? "paths" : "path_hash_prefixes"] = .array(paths)
            roles.append(entry)
            for key in role.keys where !keys.contains(where: { $0.name == key.id }) {
                keys.append(.init(key.id, key.tree))
            }
        }
        tree["delegations"] = .object([
            .init("keys", .object(keys)), .init("roles", .array(roles)),
        ])
        return tree
    }
}

extension MetadataTime {
    package static func + (time: MetadataTime, duration: Duration) -> MetadataTime {
        MetadataTime(secondsSince1970: time.secondsSince1970 + duration.components.seconds)
    }

    package static func - (time: MetadataTime, duration: Duration) -> MetadataTime {
        MetadataTime(secondsSince1970: time.secondsSince1970 - duration.components.seconds)
    }
}

extension Duration {
    package static func days(_ count: Int) -> Duration { .seconds(count * 86400) }
}
