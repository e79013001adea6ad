package import StageModel

/// A publisher's manifest for editing: keeps all unrelated members, including unknown ones.
package struct ManifestDocument {
    /// The parsed manifest.
    package private(set) var manifest: Manifest
    private var tree: JSONTree

    /// Creates a manifest with revision 1 and without packs.
    ///
    /// - Throws: ``ManifestError`` for an invalid base URL.
    package init(application: ApplicationID, baseURLs: [String]) throws(ManifestError) {
        let urls: [JSONTree] = baseURLs.map { .string($0) }
        let tree = JSONTree.object([
            .init("manifestVersion", .integer(Int64(Manifest.formatVersion))),
            .init("application", .string(application.text)),
            .init("revision", .integer(1)),
            .init("baseURLs", .array(urls)),
            .init("packs", .array([])),
        ])
        self.tree =
            baseURLs.isEmpty ? .object(tree.members.filter { $0.name != "baseURLs" }) : tree
        manifest = try Manifest(json: Self.bytes(self.tree))
    }

    /// Parses a manifest.
    package init(json: [UInt8]) throws(ManifestError) {
        manifest = try Manifest(json: json)
        var parser = JSONParser(json)
        tree = try parser.document()
    }

    /// Returns the document as JSON.
    package func json() -> [UInt8] { Self.bytes(tree) }

    /// Adds a pack or replaces the pack with the same id, and increments the revision.
    ///
    /// A version must always have the same content, because caches and people identify content by version:
    /// other content for an existing version is an error.
    ///
    /// - Parameters:
    ///   - pack: The pack.
    ///   - priority: The priority; `nil` keeps the existing one.
    ///   - replacesContent: Indicates whether the content of the version may change, because no client has
    ///     downloaded it.
    /// - Returns: Whether the document has changed.
    /// - Throws: ``ManifestEditError``; the document is unchanged then.
    package mutating func add(
        _ pack: Pack,
        priority: Int? = nil,
        replacesContent: Bool = false
    ) throws(ManifestEditError) -> Bool {
        var pack = pack
        let index = manifest.packs.firstIndex { $0.id == pack.id }
        let present = index.map { manifest.packs[$0] }
        if let present, pack.version < present.version {
            throw .versionWentBack(pack.id, present: present.version, offered: pack.version)
        }
        if let present, pack.version == present.version, !replacesContent,
            pack.contentDigest != present.contentDigest
        {
            throw .contentOfVersionChanged(pack.id, version: pack.version)
        }
        pack.priority = priority ?? present?.priority ?? pack.priority
        let fresh = try Self.tree(of: pack)
        var packs = tree["packs"]?.elements ?? []
        if let index {
            packs[index] = Self.merge(packs[index], with: fresh)
        } else {
            packs.append(fresh)
        }
        return try replacePacks(packs)
    }

    /// Removes a pack, and increments the revision.
    ///
    /// - Throws: ``ManifestEditError``; the document is unchanged then.
    package mutating func remove(_ id: PackID) throws(ManifestEditError) {
        guard let index = manifest.packs.firstIndex(where: { $0.id == id }) else {
            throw .unknownPack(id)
        }
        var packs = tree["packs"]?.elements ?? []
        packs.remove(at: index)
        _ = try replacePacks(packs)
    }

    /// Sets the policy of a pack, and increments the revision; returns whether the document has changed.
    ///
    /// - Throws: ``ManifestEditError``; the document is unchanged then.
    package mutating func setPolicy(
        _ policy: DownloadPolicy,
        of id: PackID
    ) throws(ManifestEditError) -> Bool {
        guard let index = manifest.packs.firstIndex(where: { $0.id == id }) else {
            throw .unknownPack(id)
        }
        var pack = manifest.packs[index]
        pack.policy = policy
        var packs = tree["packs"]?.elements ?? []
        if let value = try Self.tree(of: pack)["policy"] {
            packs[index] = packs[index].setting("policy", to: value)
        }
        return try replacePacks(packs)
    }

    /// Adds the deltas and delta sets of the store to packs with the content of a stored index, and
    /// increments the revision; returns whether the document has changed.
    ///
    /// Keeps other deltas that a pack already names, within the limits of a manifest.
    ///
    /// - Throws: ``ManifestEditError``; the document is unchanged then.
    package mutating func nameDeltas(
        of stored: StoredIndex
    ) throws(ManifestEditError) -> Bool {
        let content = stored.reference.contentDigest
        var packs = tree["packs"]?.elements ?? []
        var isOffered = false
        for (position, pack) in manifest.packs.enumerated() {
            guard let index = pack.index, index.contentDigest == content else { continue }
            isOffered = true
            var changed = pack
            let deltas = stored.deltas(besideIndexAt: index.url)
            let bases = Set(deltas.map(\.base))
            let others = index.deltas.filter { !bases.contains($0.base) }
            changed.index?.deltas = Array((deltas + others).prefix(ManifestLimits.deltas))
            guard Set(changed.index?.deltas ?? []) != Set(index.deltas),
                let value = try Self.tree(of: changed)["index"]?["deltas"],
                let present = packs[position]["index"]
            else { continue }
            packs[position] = packs[position].setting(
                "index",
                to: present.setting("deltas", to: value)
            )
        }
        guard isOffered else { throw .notOffered(content) }
        return try replacePacks(packs)
    }

    /// Replaces the packs and increments the revision, if that changes what clients read; returns whether it does.
    private mutating func replacePacks(_ packs: [JSONTree]) throws(ManifestEditError) -> Bool {
        let (revision, overflows) = Int64(manifest.revision).addingReportingOverflow(1)
        let edited = tree.setting("packs", to: .array(packs))
        let revised = edited.setting("revision", to: .integer(revision))
        do throws(ManifestError) {
            let unrevised = try Manifest(json: Self.bytes(edited))
            // Compares bytes, too: texts that are canonically equivalent in Unicode are equal in Swift, and not for every
            // application.
            if unrevised == manifest, unrevised.json() == manifest.json() { return false }
        } catch {
            throw .manifest(error)
        }
        if overflows { throw .lastRevision }
        do throws(ManifestError) {
            manifest = try Manifest(json: Self.bytes(revised))
            tree = revised
            return true
        } catch {
            throw .manifest(error)
        }
    }

    /// The known members of a pack, its archive and its index, in a readable order.
    private static let names = [
        "id", "version", "policy", "archive", "index", "installedSize", "fileCount",
        "directoryCount", "priority", "userInfo", "url", "format", "size", "sha256", "fileName",
        "windowSize", "contentSize", "contentSHA256", "bundleSize", "deltas", "fileTableDelta",
    ]

    /// Returns the pack as JSON for the manifest.
    private static func tree(of pack: Pack) throws(ManifestEditError) -> JSONTree {
        // The application is arbitrary: a manifest needs one.
        let application = ApplicationID(unchecked: pack.id.text)
        let whole = Manifest(application: application, revision: 0, packs: [pack]).json()
        do throws(ManifestError) {
            var parser = JSONParser(whole)
            let tree = sorted(try parser.document()["packs"]?.elements.first ?? .null)
            return tree["archive"].map { tree.setting("archive", to: sorted($0)) } ?? tree
        } catch {
            throw .manifest(error)
        }
    }

    private static func sorted(_ tree: JSONTree) -> JSONTree {
        func rank(_ member: JSONTree.Member) -> Int {
            names.firstIndex(of: member.name) ?? names.count
        }
        return .object(tree.members.sorted { rank($0) < rank($1) })
    }

    /// Merges a pack's new entry with the members of the old one that the command does not set, in the order of the
    /// old one.
    private static func merge(_ old: JSONTree, with new: JSONTree) -> JSONTree {
        var merged: JSONTree = .object([])
        for member in old.members {
            if let value = new[member.name] {
                let isMerged = ["archive", "index", "fileTableDelta"].contains(member.name)
                merged = merged.setting(
                    member.name,
                    to: isMerged ? merge(member.value, with: value) : value
                )
            } else if keeps(member.name, of: old, with: new) {
                merged = merged.setting(member.name, to: member.value)
            }
        }
        for member in new.members where merged[member.name] == nil {
            merged = merged.setting(member.name, to: member.value)
        }
        return merged
    }

    /// Returns whether a member that the new entry lacks stays.
    private static func keeps(_ name: String, of old: JSONTree, with new: JSONTree) -> Bool {
        switch name {
        case "fileName": old["format"]?.text == new["format"]?.text
        case "windowSize": old["sha256"]?.text == new["sha256"]?.text
        // An unknown member of an archive or an index may describe its bytes; a pack itself has no digest.
        default: !names.contains(name) && old["sha256"]?.text == new["sha256"]?.text
        }
    }

    private static func bytes(_ tree: JSONTree) -> [UInt8] { Array("\(tree.indented())\n".utf8) }
}

/// The reason why a manifest was not changed.
@nonexhaustive
package indirect enum ManifestEditError: Error, Equatable, Sendable {
    /// The changed document would be invalid.
    case manifest(ManifestError)
    /// The manifest does not contain the pack.
    case unknownPack(PackID)
    /// The manifest has a newer version of the pack.
    case versionWentBack(PackID, present: Int, offered: Int)
    /// The manifest has the same version with other content.
    case contentOfVersionChanged(PackID, version: Int)
    /// The manifest has the largest revision, so that no other can follow.
    case lastRevision
    /// No pack has the index with this digest of its decompressed bytes.
    case notOffered(Digest)
}

extension ManifestEditError: CustomStringConvertible {
    /// A lower-case sentence fragment for people.
    package var description: String {
        switch self {
        case .manifest(let error):
            error.description
        case .unknownPack(let id):
            "there is no pack '\(id)'"
        case .versionWentBack(let id, let present, let offered):
            "pack '\(id)': expected a version of \(present) or more, found \(offered)"
        case .contentOfVersionChanged(let id, let version):
            "pack '\(id)': the manifest has version \(version) with other content"
        case .lastRevision:
            "expected a revision below \(Int64.max), found the largest"
        case .notOffered:
            "no pack of the manifest has that index"
        }
    }
}
