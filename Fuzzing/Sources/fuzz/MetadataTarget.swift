import StageDigest
import StageModel
import StageTesting

@testable import StageTrust

/// Metadata of The Update Framework.
///
/// An input is one metadata file; or, split at bytes of 0xFF, the signed parts of the files of a repository,
/// which the target signs with a key that clients trust: `@I` is replaced by its identifier, `@P` by its public key.
///
/// - The signature covers the canonical form, and parsing this form gives equal metadata.
/// - Formatting a parsed time gives the same text.
/// - A refresh ends after at most one fetch of each file; the files that it trusts are consistent and have not
///   expired; the files that it stored are valid alone, and a second refresh from them gives the same result.
/// - A search ends, and finds only the requested target.
enum MetadataTarget: FuzzTarget {
    static func test(_ bytes: [UInt8]) {
        let parts = bytes.split(separator: 0xFF, omittingEmptySubsequences: false).map(Array.init)
        if parts.count == 1 { checkFile(bytes) } else { checkRepository(parts) }
    }

    // MARK: One file

    private static let limit = ByteCount.kibibytes(512)

    private static func checkFile(_ bytes: [UInt8]) {
        _ = parsed { () throws(TrustError) in try RootMetadata(trusted: bytes) }
        let envelope = parsed { () throws(TrustError) in
            try Envelope(bytes, of: .root, limit: limit)
        }
        guard let envelope else { return }
        check(RootMetadata.self, in: envelope) { root in
            for role in [RoleName.root, .timestamp, .snapshot, .targets] {
                let keys = root.keys(of: role)
                for key in keys.keys {
                    let code = parsed { () throws(KeyError) in try key.publicKey().encoded }
                    require(code?.isEmpty != true, "a key has an encoding")
                }
                let shortage = keys.shortage(of: envelope, delegator: .root, version: 1)
                require(
                    shortage.map { $0.valid < $0.threshold } ?? true,
                    "a shortage of signatures is one"
                )
            }
        }
        check(TimestampMetadata.self, in: envelope) { _ in }
        check(SnapshotMetadata.self, in: envelope) { snapshot in
            require(snapshot.description(of: .targets) != nil, "a snapshot lists the targets")
        }
        check(TargetsMetadata.self, in: envelope) { targets in
            for path in targets.paths.prefix(8) {
                for delegation in targets.delegations.list.prefix(8) {
                    _ = delegation.covers(path.text)
                    let name = delegation.role.fileName.utf8
                    require(
                        name.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != 0x2F },
                        "a name is a file's"
                    )
                }
            }
        }
    }

    private static func check<Metadata: SignedMetadata & Equatable>(
        _ type: Metadata.Type,
        in envelope: Envelope,
        _ body: (Metadata) -> Void
    ) {
        let metadata = parsed { () throws(TrustError) in try envelope.metadata(type, of: .root) }
        guard let metadata else { return }
        let expiry = metadata.header.expiry
        let time = parsed { () throws(ValueError) in try MetadataTime(expiry.description) }
        require(time == expiry, "a time is written as it was read")
        JSONTarget.checkCanonical(envelope.signed)
        if let node = parsed({ () throws(ManifestError) in try JSONNode(json: envelope.message) }) {
            let again = parsed { () throws(ManifestError) in try Metadata(reading: node) }
            require(again == metadata, "what is signed is what is read")
        }
        body(metadata)
    }

    // MARK: A repository

    // The key needs no lock: libFuzzer calls a target on one thread.
    private nonisolated(unsafe) static let key = try? SigningKey()
    private static let time = TestRepository.now

    private static func checkRepository(_ parts: [[UInt8]]) {
        guard let key = unsafe key else { fatalError("no key") }
        let files = parts.map { signed($0, by: key) }
        guard files.count >= 3 else { return }
        var stored = StoredMetadata(root: signed(Array(root(1).utf8), by: key))
        guard let first = refresh(&stored, files) else { return }
        require(first.snapshot.version == first.timestamp.snapshot.version, "versions agree")
        require(time < first.expiry, "nothing has expired")
        let offline = parsed { () throws(TrustError) in
            try TrustedMetadata(stored: stored, at: time)
        }
        require(offline == first, "what is stored is valid by itself")
        // Root files are already stored, so there are no later ones.
        let second = refresh(&stored, Array(files.prefix(3)))
        require(second?.targets == first.targets, "a second refresh leads to the same")
        for path in first.targets.paths.prefix(4) + [TargetPath("a/b")] {
            search(for: path, in: first, Array(files.dropFirst(3)))
        }
    }

    /// Refreshes from files: the timestamp, the snapshot, the targets, then roots.
    private static func refresh(
        _ stored: inout StoredMetadata,
        _ files: [[UInt8]]
    ) -> TrustedMetadata? {
        var roots = files.dropFirst(3)
        let start = parsed { () throws(TrustError) in try MetadataRefresh(from: stored, at: time) }
        guard var refresh = start else { fatalError("a trusted root is valid") }
        for _ in 0..<(4 * files.count + 8) {
            guard let step = parsed({ () throws(TrustError) in try refresh.next() }) else {
                return nil
            }
            switch step {
            case .fetch(let file):
                switch file.role {
                case .root:
                    if let root = roots.popFirst() {
                        refresh.accept(root)
                    } else {
                        refresh.notFound()
                    }
                case .timestamp: refresh.accept(files[0])
                case .snapshot: refresh.accept(files[1])
                default: refresh.accept(files[2])
                }
            case .store(let role, let bytes): store(bytes, of: role, in: &stored)
            case .remove(let role): store(nil, of: role, in: &stored)
            case .done(let metadata): return metadata
            }
        }
        fatalError("a refresh does not end")
    }

    private static func store(_ bytes: [UInt8]?, of role: RoleName, in stored: inout StoredMetadata)
    {
        switch role {
        case .root: stored.root = bytes ?? stored.root
        case .timestamp: stored.timestamp = bytes
        case .snapshot: stored.snapshot = bytes
        default: stored.targets = bytes
        }
    }

    private static func search(
        for path: TargetPath,
        in metadata: TrustedMetadata,
        _ files: [[UInt8]]
    ) {
        var files = files[...]
        var search = TargetSearch(for: path, in: metadata)
        for _ in 0..<200 {
            guard let step = parsed({ () throws(TrustError) in try search.next() }) else { return }
            switch step {
            case .load: search.notFound()
            case .fetch:
                if let file = files.popFirst() { search.accept(file) } else { search.notFound() }
            case .store: break
            case .found(let target): return require(target.path == path, "the target is the one")
            case .absent: return
            }
        }
        fatalError("a search does not end")
    }

    /// Returns a metadata file with the given signed part.
    private static func signed(_ part: [UInt8], by key: SigningKey) -> [UInt8] {
        let text = replaced(replaced(part, "@I", key.id), "@P", publicKey)
        let node = parsed { () throws(ManifestError) in try JSONNode(json: text) }
        let message = node.flatMap { node in
            parsed { () throws(ManifestError) in try CanonicalJSON.bytes(of: node) }
        }
        // Bytes without a canonical form cannot be signed.
        let signature = message.flatMap { try? key.signature(of: $0) } ?? ""
        let head = #"{"signatures":[{"keyid":"\#(key.id)","sig":"\#(signature)"}],"signed":"#
        return Array(head.utf8) + text + Array("}".utf8)
    }

    private static let publicKey =
        unsafe key?.tree["keyval"]?["public"].map { tree in
            if case .string(let text) = tree { text } else { "" }
        } ?? ""

    private static func replaced(_ bytes: [UInt8], _ mark: String, _ text: String) -> [UInt8] {
        var result: [UInt8] = []
        var rest = bytes[...]
        let mark = Array(mark.utf8)
        while let byte = rest.first {
            if rest.starts(with: mark) {
                result += text.utf8
                rest = rest.dropFirst(mark.count)
            } else {
                result.append(byte)
                rest = rest.dropFirst()
            }
        }
        return result
    }

    // MARK: Seeds

    private static func header(_ type: String, _ version: Int) -> String {
        #""_type":"\#(type)","spec_version":"1.0.34","version":\#(version),"expires":"2026-02-01T00:00:00Z""#
    }

    private static func root(_ version: Int) -> String {
        let role = #"{"keyids":["@I"],"threshold":1}"#
        let key = #"{"keytype":"ed25519","scheme":"ed25519","keyval":{"public":"@P"}}"#
        return #"{\#(header("root", version)),"consistent_snapshot":true,"keys":{"@I":\#(key)},"#
            + #""roles":{"root":\#(role),"timestamp":\#(role),"snapshot":\#(role),"targets":\#(role)}}"#
    }

    static func seeds() throws -> [[UInt8]] {
        let digest = String(repeating: "0a", count: 32)
        let timestamp = #"{\#(header("timestamp", 1)),"meta":{"snapshot.json":{"version":1}}}"#
        let snapshot =
            #"{\#(header("snapshot", 1)),"meta":{"targets.json":{"version":1},"r.json":{"version":1}}}"#
        let key = #"{"keytype":"ed25519","scheme":"ed25519","keyval":{"public":"@P"}}"#
        let targets =
            #"{\#(header("targets", 1)),"targets":{"a/c":{"length":1,"hashes":{"sha256":"\#(digest)"},"custom":{"a":1}}},"#
            + #""delegations":{"keys":{"@I":\#(key)},"roles":[{"name":"r","keyids":["@I"],"threshold":1,"#
            + #""terminating":true,"paths":["a/*","[!b]?"]},{"name":"é","keyids":[],"threshold":2,"path_hash_prefixes":["0A"]}]}}"#
        let role =
            #"{\#(header("targets", 1)),"targets":{"a/b":{"length":1,"hashes":{"sha512":"\#(digest)\#(digest)"}}}}"#
        let expired = timestamp.replacing("2026-02-01", with: "2025-02-01")
        var repository = try TestRepository(contents: ["a": [1], "b/c": [2]])
        repository.listsDigests = true
        try repository.publish()
        func joined(_ parts: String...) -> [UInt8] {
            Array(parts.map { Array($0.utf8) }.joined(separator: [0xFF]))
        }
        return repository.files.keys.sorted().compactMap { repository.files[$0] }
            + [
                joined(timestamp, snapshot, targets), joined(timestamp, snapshot, targets, role),
                joined(expired, snapshot, targets),
                joined(timestamp, snapshot, targets, root(2), root(3)),
                joined(timestamp, snapshot, targets, root(2), role),
            ]
    }

    static let words =
        utf8(
            "@I",
            "@P",
            "\"signatures\":",
            "\"signed\":",
            "\"keyid\":",
            "\"sig\":",
            "\"_type\":",
            "\"spec_version\":",
            "\"version\":",
            "\"expires\":",
            "\"meta\":",
            "\"snapshot.json\":",
            "\"targets.json\":",
            "\"length\":",
            "\"hashes\":",
            "\"sha256\":",
            "\"sha512\":",
            "\"targets\":",
            "\"delegations\":",
            "\"roles\":",
            "\"name\":",
            "\"keyids\":",
            "\"threshold\":",
            "\"terminating\":",
            "\"paths\":",
            "\"path_hash_prefixes\":",
            "\"consistent_snapshot\":",
            "\"keytype\":",
            "\"scheme\":",
            "\"keyval\":",
            "\"public\":",
            "\"custom\":",
            "\"root\"",
            "\"timestamp\"",
            "\"snapshot\"",
            "ecdsa-sha2-nistp256",
            "rsassa-pss-sha256",
            "-----BEGIN PUBLIC KEY-----\\n",
            "2026-02-01T00:00:00Z",
            "9007199254740992",
            "[!",
            "*"
        ) + [[0xFF]]
}
