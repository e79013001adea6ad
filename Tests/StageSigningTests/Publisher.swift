import StageDigest
import StageModel
import StageSigning
import StageSystem
import StageTesting
import StageTrust
import SystemPackage
import Testing

/// A publisher's directory, and a client that reads it.
final class Publisher {
    let directory: Directory
    /// The reference time of publisher and client.
    var time = MetadataTime(secondsSince1970: 1_767_225_600)
    /// The client's storage.
    private(set) var stored: StoredMetadata?

    init() throws { directory = try TemporaryDirectory.required() }

    static func signer(_ scheme: SignatureScheme = .ed25519) throws -> PrivateKeySigner {
        try PrivateKeySigner(PrivateKey(generating: scheme, rsaBits: 2048), source: "test")
    }

    var files: RepositoryFiles {
        RepositoryFiles(directory: directory, manifestName: "manifest.json")
    }

    func write(_ manifest: String) throws {
        try directory.write(Array(manifest.utf8), to: "manifest.json", durably: false)
    }

    func run(_ signers: any MetadataSigner...) throws -> SigningRun {
        let bytes = try directory.bytes(of: "manifest.json", limit: 1 << 20)
        return SigningRun(
            files,
            manifest: try #require(bytes),
            signers: signers,
            at: time
        )
    }

    /// Advances the time.
    func wait(days: Int) {
        time = MetadataTime(secondsSince1970: time.secondsSince1970 + Int64(days) * 86400)
    }

    /// Returns the names in `metadata`, sorted.
    func names(in folder: String = "metadata") throws -> [String] {
        let folder = try directory.directory(FilePath(folder))
        return try folder?.entries().map(\.path.string).sorted() ?? []
    }

    func bytes(_ path: String) throws -> [UInt8]? {
        try directory.bytes(of: FilePath(path), limit: 1 << 20)
    }

    /// Updates the client's metadata, and returns the manifest that it trusts.
    @discardableResult
    func refreshClient() throws -> String {
        let metadata = try refreshedMetadata()
        var search = TargetSearch(for: TargetPath("manifest.json"), in: metadata)
        guard case .found(let target) = try search.next() else {
            throw MissingTarget()
        }
        let content = try #require(try bytes(target.location))
        try target.check(content)
        return String(decoding: content, as: UTF8.self)
    }

    func refreshedMetadata() throws -> TrustedMetadata {
        if stored == nil {
            stored = StoredMetadata(root: try #require(try bytes("metadata/1.root.json")))
        }
        var refresh = try MetadataRefresh(from: try #require(stored), at: time)
        while true {
            switch try refresh.next() {
            case .fetch(let file):
                if let bytes = try bytes("metadata/\(file.path)") {
                    refresh.accept(bytes)
                } else {
                    refresh.notFound()
                }
            case .store(let role, let bytes): store(role, bytes)
            case .remove(let role): store(role, nil)
            case .done(let metadata): return metadata
            }
        }
    }

    private func store(_ role: RoleName, _ bytes: [UInt8]?) {
        switch role {
        case .root: stored?.root = bytes ?? []
        case .timestamp: stored?.timestamp = bytes
        case .snapshot: stored?.snapshot = bytes
        default: stored?.targets = bytes
        }
    }
}

/// The metadata does not name the manifest.
struct MissingTarget: Error {}

extension RootContent {
    /// Creates content with the same keys for all roles.
    init(_ keys: RepositoryKey..., threshold: Int = 1) {
        self.init(
            roles: Dictionary(
                uniqueKeysWithValues: SigningRole.allCases.map {
                    ($0, Role(keys: keys, threshold: threshold))
                }
            )
        )
    }
}

extension SigningTasks {
    /// Signs the current manifest.
    static var manifest: SigningTasks {
        var tasks = SigningTasks()
        tasks.takesManifest = true
        return tasks
    }

    /// Signs the manifest, and the draft of a root.
    static var root: SigningTasks {
        var tasks = manifest
        tasks.signsRoot = true
        return tasks
    }
}
