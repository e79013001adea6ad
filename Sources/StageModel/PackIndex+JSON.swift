/// An index in the JSON of a manifest.
struct IndexDocument: JSONReadable, Encodable {
    var index: PackIndex

    private enum Key: String, CodingKey, CaseIterable {
        case url, size, sha256, contentSize, contentSHA256, bundleSize, deltas, fileTableDelta
    }

    static let memberNames = MemberNames(
        Key.self,
        nested: [
            .deltas: DeltaDocument.memberNames,
            .fileTableDelta: CompanionDeltaDocument.memberNames,
        ]
    )

    init(_ index: PackIndex) { self.index = index }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        index = PackIndex(
            url: try members.reference(.url),
            size: try members.byteCount(.size, atMost: ManifestLimits.indexSize),
            digest: try members.digest(.sha256),
            contentSize: try members.byteCount(.contentSize, atMost: ManifestLimits.indexSize),
            contentDigest: try members.digest(.contentSHA256),
            bundleSize: try members.byteCount(.bundleSize, atMost: ManifestLimits.archiveSize)
        )
        if members.has(.fileTableDelta) {
            index.fileTableDelta =
                try members.value(CompanionDeltaDocument.self, for: .fileTableDelta).delta
        }
        guard members.has(.deltas) else { return }
        index.deltas = try members.values(
            DeltaDocument.self,
            for: .deltas,
            expected: "an array of objects",
            atMost: ManifestLimits.deltas
        )
        .map(\.delta)
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(index.url, forKey: .url)
        try container.encode(index.size, forKey: .size)
        try container.encode(index.digest, forKey: .sha256)
        try container.encode(index.contentSize, forKey: .contentSize)
        try container.encode(index.contentDigest, forKey: .contentSHA256)
        try container.encode(index.bundleSize, forKey: .bundleSize)
        try container.encodeIfPresent(
            index.fileTableDelta.map(CompanionDeltaDocument.init),
            forKey: .fileTableDelta
        )
        guard !index.deltas.isEmpty else { return }
        try container.encode(index.deltas.map(DeltaDocument.init), forKey: .deltas)
    }
}

/// The delta of an index for clients of an archive or a patch in the JSON of a manifest.
private struct CompanionDeltaDocument: JSONReadable, Encodable {
    var delta: PackIndex.CompanionDelta

    private enum Key: String, CodingKey, CaseIterable { case url, size, sha256 }

    static let memberNames = MemberNames(Key.self)

    init(_ delta: PackIndex.CompanionDelta) { self.delta = delta }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        delta = PackIndex.CompanionDelta(
            url: try members.reference(.url),
            size: try members.byteCount(.size, atMost: ManifestLimits.indexSize),
            digest: try members.digest(.sha256)
        )
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(delta.url, forKey: .url)
        try container.encode(delta.size, forKey: .size)
        try container.encode(delta.digest, forKey: .sha256)
    }
}

/// A delta of an index in the JSON of a manifest.
private struct DeltaDocument: JSONReadable, Encodable {
    var delta: PackIndex.Delta

    private enum Key: String, CodingKey, CaseIterable {
        case from, url, size, sha256, frames, patch
    }

    static let memberNames = MemberNames(
        Key.self,
        nested: [
            .frames: DeltaFramesDocument.memberNames, .patch: PatchDocument.memberNames,
        ]
    )

    init(_ delta: PackIndex.Delta) { self.delta = delta }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        delta = PackIndex.Delta(
            base: try members.digest(.from),
            url: try members.reference(.url),
            size: try members.byteCount(.size, atMost: ManifestLimits.indexSize),
            digest: try members.digest(.sha256)
        )
        if members.has(.frames) {
            delta.frames = try members.value(DeltaFramesDocument.self, for: .frames).frames
        }
        if members.has(.patch) {
            delta.patch = try members.value(PatchDocument.self, for: .patch).patch
        }
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(delta.base, forKey: .from)
        try container.encode(delta.url, forKey: .url)
        try container.encode(delta.size, forKey: .size)
        try container.encode(delta.digest, forKey: .sha256)
        try container.encodeIfPresent(
            delta.frames.map(DeltaFramesDocument.init),
            forKey: .frames
        )
        try container.encodeIfPresent(delta.patch.map(PatchDocument.init), forKey: .patch)
    }
}

/// A patch in the JSON of a manifest.
private struct PatchDocument: JSONReadable, Encodable {
    var patch: PackIndex.Patch

    private enum Key: String, CodingKey, CaseIterable {
        case url, size, sha256, windowSize, prefixSize, indexDelta
    }

    static let memberNames = MemberNames(
        Key.self,
        nested: [.indexDelta: CompanionDeltaDocument.memberNames]
    )

    init(_ patch: PackIndex.Patch) { self.patch = patch }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        patch = PackIndex.Patch(
            url: try members.reference(.url),
            size: try members.byteCount(.size, atMost: ManifestLimits.patchSize),
            digest: try members.digest(.sha256),
            windowSize: try members.byteCount(.windowSize, atMost: ManifestLimits.windowSize),
            prefixSize: try members.byteCount(.prefixSize, atMost: ManifestLimits.windowSize)
        )
        if members.has(.indexDelta) {
            patch.indexDelta =
                try members.value(CompanionDeltaDocument.self, for: .indexDelta).delta
        }
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(patch.url, forKey: .url)
        try container.encode(patch.size, forKey: .size)
        try container.encode(patch.digest, forKey: .sha256)
        try container.encode(patch.windowSize, forKey: .windowSize)
        try container.encode(patch.prefixSize, forKey: .prefixSize)
        try container.encodeIfPresent(
            patch.indexDelta.map(CompanionDeltaDocument.init),
            forKey: .indexDelta
        )
    }
}

/// A delta set in the JSON of a manifest.
private struct DeltaFramesDocument: JSONReadable, Encodable {
    var frames: PackIndex.DeltaFrames

    private enum Key: String, CodingKey, CaseIterable {
        case size, sha256, tableSize, tableSHA256
    }

    static let memberNames = MemberNames(Key.self)

    init(_ frames: PackIndex.DeltaFrames) { self.frames = frames }

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Key.self)
        frames = PackIndex.DeltaFrames(
            size: try members.byteCount(.size, atMost: ManifestLimits.deltaSetSize),
            digest: try members.digest(.sha256),
            tableSize: try members.byteCount(.tableSize, atMost: ManifestLimits.deltaTableSize),
            tableDigest: try members.digest(.tableSHA256)
        )
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(frames.size, forKey: .size)
        try container.encode(frames.digest, forKey: .sha256)
        try container.encode(frames.tableSize, forKey: .tableSize)
        try container.encode(frames.tableDigest, forKey: .tableSHA256)
    }
}

extension JSONMembers {
    /// Returns a URL member, absolute or relative.
    func reference(_ key: Key) throws(ManifestError) -> String {
        try text(key) { text throws(ValueError) in
            try URLReference.check(text, form: .absoluteOrRelative)
            return text
        }
    }

    /// Returns a digest member in hexadecimal.
    package func digest(_ key: Key) throws(ManifestError) -> Digest {
        try text(key) { text throws(ValueError) in try Digest(hexadecimal: text) }
    }
}
