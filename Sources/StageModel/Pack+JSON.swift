/// A pack in the JSON of a manifest.
struct PackDocument: JSONReadable, Encodable {
    var pack: Pack

    enum Key: String, CodingKey, CaseIterable {
        case id, version, policy, archive, index, installedSize, fileCount, directoryCount
        case priority, requires, userInfo
    }

    static let memberNames = MemberNames(
        Key.self,
        nested: [
            .policy: PolicyDocument.memberNames, .archive: ArchiveDocument.memberNames,
            .index: IndexDocument.memberNames, .requires: RequirementsDocument.memberNames,
        ]
    )

    init(_ pack: Pack) { self.pack = pack }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        pack = Pack(
            id: try members.text(.id) { text throws(ValueError) in try PackID(text) },
            version: try members.number(.version, in: 1...Int.max),
            policy: try members.value(PolicyDocument.self, for: .policy).policy,
            archive: members.has(.archive) || !members.has(.index)
                ? try members.value(ArchiveDocument.self, for: .archive).archive : nil,
            index: members.has(.index)
                ? try members.value(IndexDocument.self, for: .index).index : nil,
            installedSize: try members.byteCount(
                .installedSize,
                atMost: ManifestLimits.installedSize
            ),
            fileCount: try members.number(.fileCount, in: 0...ManifestLimits.fileCount)
        )
        if members.has(.directoryCount) {
            let limit = ManifestLimits.directories(fileCount: pack.fileCount)
            pack.directoryCount = try members.number(.directoryCount, in: 0...limit)
        }
        if members.has(.priority) {
            pack.priority = try members.number(.priority, in: .min ... .max)
        }
        if members.has(.requires) {
            pack.applicationVersion =
                try members.value(RequirementsDocument.self, for: .requires).applicationVersion
        }
        pack.userInfo = try members.userInfo(.userInfo)
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(pack.id, forKey: .id)
        try container.encode(pack.version, forKey: .version)
        try container.encode(PolicyDocument(pack.policy), forKey: .policy)
        try container.encodeIfPresent(pack.archive.map(ArchiveDocument.init), forKey: .archive)
        try container.encodeIfPresent(pack.index.map(IndexDocument.init), forKey: .index)
        try container.encode(pack.installedSize, forKey: .installedSize)
        try container.encode(pack.fileCount, forKey: .fileCount)
        try container.encodeIfPresent(pack.directoryCount, forKey: .directoryCount)
        if pack.priority != 0 { try container.encode(pack.priority, forKey: .priority) }
        try container.encodeIfPresent(
            RequirementsDocument(pack.applicationVersion),
            forKey: .requires
        )
        if let userInfo = pack.userInfo {
            try container.encode(JSONValue(text: userInfo) ?? .string(userInfo), forKey: .userInfo)
        }
    }
}

/// A policy in the JSON of a manifest: an object with one member, named after the policy.
package struct PolicyDocument: JSONReadable, Encodable {
    /// The policy.
    package var policy: DownloadPolicy

    /// The parser refuses other names of policies.
    static let memberNames = MemberNames(
        ["essential", "prefetch", "onDemand"],
        of: EventsDocument.memberNames
    )

    init(_ policy: DownloadPolicy) { self.policy = policy }

    /// A coding key of any name, for the name of the policy.
    private struct Name: CodingKey {
        var stringValue: String
        var intValue: Int? { nil }

        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }

    package init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Name.self)
        let names = members.names.sorted()
        let name = names.count == 1 ? names[0] : ""
        func events() throws(ManifestError) -> Set<InstallationEvent> {
            try members.value(EventsDocument.self, for: Name(stringValue: name)).events
        }
        switch name {
        case "essential": policy = .essential(try events())
        case "prefetch": policy = .prefetch(try events())
        case "onDemand":
            _ = try members.value(EmptyDocument.self, for: Name(stringValue: name))
            policy = .onDemand
        default:
            let found = names.map { "'\($0.forDisplay(atMost: 30))'" }
            throw node.fault(
                ValueError(
                    expected: "one of 'essential', 'prefetch', 'onDemand'",
                    found: found.isEmpty ? "none" : found.prefix(4).joined(separator: " and ")
                )
            )
        }
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Name.self)
        switch policy {
        case .essential(let events):
            try container.encode(EventsDocument(events), forKey: Name(stringValue: "essential"))
        case .prefetch(let events):
            try container.encode(EventsDocument(events), forKey: Name(stringValue: "prefetch"))
        case .onDemand:
            try container.encode(EmptyDocument(), forKey: Name(stringValue: "onDemand"))
        }
    }
}

/// An object without known members.
private struct EmptyDocument: JSONReadable, Encodable {
    private enum Key: CodingKey {}

    init() {}

    init(reading node: JSONNode) throws(ManifestError) {
        _ = try JSONMembers(node, keyedBy: Key.self)
    }

    func encode(to encoder: any Encoder) throws { _ = encoder.container(keyedBy: Key.self) }
}

/// The events of a policy.
private struct EventsDocument: JSONReadable, Encodable {
    var events: Set<InstallationEvent>

    private enum Key: String, CodingKey, CaseIterable { case installationEventTypes }

    static let memberNames = MemberNames(Key.self)

    init(_ events: Set<InstallationEvent>) { self.events = events }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        let key = Key.installationEventTypes
        let names = try members.values(
            JSONString.self,
            for: key,
            expected: "an array of strings",
            atMost: ManifestLimits.events
        )
        var events: Set<InstallationEvent> = []
        try members.check(names, of: key) { name throws(ValueError) in
            guard let event = InstallationEvent(rawValue: name.text) else {
                throw ValueError(
                    expected: "one of 'firstInstallation', 'subsequentUpdate'",
                    text: name.text
                )
            }
            events.insert(event)
        }
        self.events = events
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        let names = InstallationEvent.allCases.filter(events.contains).map(\.rawValue)
        try container.encode(names, forKey: .installationEventTypes)
    }
}

/// An archive in the JSON of a manifest.
private struct ArchiveDocument: JSONReadable, Encodable {
    var archive: PackArchive

    private enum Key: String, CodingKey, CaseIterable {
        case url, format, size, sha256, fileName, windowSize
    }

    static let memberNames = MemberNames(Key.self)

    init(_ archive: PackArchive) { self.archive = archive }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        archive = PackArchive(
            url: try members.reference(.url),
            format: try members.text(.format) { text throws(ValueError) in
                guard let format = ArchiveFormat(rawValue: text) else {
                    let known = ArchiveFormat.allCases.map { "'\($0.rawValue)'" }
                    throw ValueError(
                        expected: "one of \(known.joined(separator: ", "))",
                        text: text
                    )
                }
                return format
            },
            size: try members.byteCount(.size, atMost: ManifestLimits.archiveSize),
            digest: try members.digest(.sha256)
        )
        if members.has(.windowSize) {
            archive.windowSize = try members.byteCount(
                .windowSize,
                atMost: ManifestLimits.windowSize
            )
            guard archive.format == .tarZstandard else {
                let format = archive.format.rawValue
                let expected = "nothing beside the format '\(format)'"
                throw members.fault(
                    for: .windowSize,
                    ValueError(expected: expected, found: "a number")
                )
            }
        }
        if members.has(.fileName) {
            archive.fileName = try members.text(.fileName) { text throws(ValueError) in
                let path = try ContentPath(text)
                guard path.parent == nil else {
                    throw ValueError(expected: "a file name without '/'", text: text)
                }
                return text
            }
        }
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(archive.url, forKey: .url)
        try container.encode(archive.format, forKey: .format)
        try container.encode(archive.size, forKey: .size)
        try container.encode(archive.digest, forKey: .sha256)
        try container.encodeIfPresent(archive.fileName, forKey: .fileName)
        try container.encodeIfPresent(archive.windowSize, forKey: .windowSize)
    }
}
