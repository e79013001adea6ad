import FoundationEssentials

extension Manifest {
    /// Parses a manifest.
    ///
    /// Ignores unknown members; optional members may be `null`.
    ///
    /// - Throws: ``ManifestError`` for the first member that violates a rule of the format or of
    ///   ``ManifestLimits``.
    public init(json: [UInt8]) throws(ManifestError) {
        let document = try ManifestError.decode(
            Document.self,
            from: json,
            limit: ManifestLimits.byteCount
        )
        self = document.manifest
    }

    private struct Document: JSONReadable {
        var manifest: Manifest

        init(reading node: JSONNode) throws(ManifestError) {
            manifest = try Manifest(members: node)
        }
    }

    private init(members node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: ManifestKey.self)
        let version = try members.number(.manifestVersion, in: .min ... .max)
        try ManifestError.check(version: version, known: Self.formatVersion)
        self.init(
            application: try members.text(.application) { text throws(ValueError) in
                try ApplicationID(text)
            },
            revision: try members.number(.revision, in: 0...Int.max),
            applicationVersion: try members.has(.requires)
                ? members.value(RequirementsDocument.self, for: .requires).applicationVersion : nil,
            baseURLs: try members.strings(.baseURLs, atMost: ManifestLimits.baseURLs),
            packs: try members.values(
                PackDocument.self,
                for: .packs,
                expected: "an array of packs",
                atMost: ManifestLimits.packs
            ).map(\.pack)
        )
        try members.check(baseURLs, of: .baseURLs) { url throws(ValueError) in
            try URLReference.check(url, form: .absolute)
        }
        try checkUniqueness()
    }

    /// Throws if two packs have the same id.
    private func checkUniqueness() throws(ManifestError) {
        var indexes: [PackID: Int] = [:]
        for (index, pack) in packs.enumerated() {
            if let first = indexes.updateValue(index, forKey: pack.id) {
                throw .duplicate(
                    member: "packs[\(index)].id",
                    first: "packs[\(first)].id",
                    value: pack.id.text
                )
            }
        }
    }
}

/// The members of a manifest.
private enum ManifestKey: String, CodingKey, CaseIterable {
    case manifestVersion, application, revision, requires, baseURLs, packs
}

extension Manifest {
    /// The names of the members, for ``misspeltMembers(in:)``.
    static let memberNames = MemberNames(
        ManifestKey.self,
        nested: [.requires: RequirementsDocument.memberNames, .packs: PackDocument.memberNames]
    )
}

/// The member `requires` of a manifest or of a pack.
struct RequirementsDocument: JSONReadable, Encodable {
    var applicationVersion: VersionRequirement?

    enum Key: String, CodingKey, CaseIterable { case applicationVersion }

    static let memberNames = MemberNames(Key.self)

    init?(_ applicationVersion: VersionRequirement?) {
        guard let applicationVersion else { return nil }
        self.applicationVersion = applicationVersion
    }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        guard members.has(.applicationVersion) else { return }
        applicationVersion = try members.text(.applicationVersion) { text throws(ValueError) in
            try VersionRequirement(text)
        }
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encodeIfPresent(applicationVersion?.text, forKey: .applicationVersion)
    }
}

extension Manifest {
    /// Returns the manifest as JSON: indented, members sorted by name, equal bytes for equal manifests.
    ///
    /// A ``Pack/userInfo`` that is not JSON is written as a string.
    public func json() -> [UInt8] { ManifestError.encode(Encoded(manifest: self)) }

    private struct Encoded: Encodable {
        var manifest: Manifest

        func encode(to encoder: any Encoder) throws {
            var container = encoder.container(keyedBy: ManifestKey.self)
            try container.encode(Manifest.formatVersion, forKey: .manifestVersion)
            try container.encode(manifest.application, forKey: .application)
            try container.encode(manifest.revision, forKey: .revision)
            try container.encodeIfPresent(
                RequirementsDocument(manifest.applicationVersion),
                forKey: .requires
            )
            if !manifest.baseURLs.isEmpty {
                try container.encode(manifest.baseURLs, forKey: .baseURLs)
            }
            try container.encode(manifest.packs.map(PackDocument.init), forKey: .packs)
        }
    }
}

extension ManifestError {
    /// Encodes a document, indented and with its members sorted by name.
    static func encode(_ document: some Encodable) -> [UInt8] {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        do {
            return Array(try encoder.encode(document)) + [UInt8(ascii: "\n")]
        } catch {
            preconditionFailure("a document is always JSON: \(error)")
        }
    }
}
