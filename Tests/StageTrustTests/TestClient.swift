import StageModel
import StageTesting
import StageTrust

/// A client whose storage is in memory.
struct TestClient {
    /// The reference time of tests: 2026-01-01T00:00:00Z.
    static let now = MetadataTime(secondsSince1970: 1_767_225_600)

    /// The stored metadata, by file name.
    private(set) var stored: [String: [UInt8]]
    /// The path of each requested file, in order.
    private(set) var requests: [String] = []
    /// The changes of the storage, in order: file names, with `-` before a removed one.
    private(set) var changes: [String] = []
    var time = TestClient.now
    var limits = TrustLimits()

    init(root: [UInt8]) { stored = ["root.json": root] }

    /// Replaces a stored file, as a disk error or another program may do.
    mutating func damage(_ name: String, with bytes: [UInt8]?) { stored[name] = bytes }

    /// The versions of the stored files of top-level roles, 0 for missing ones.
    var versions: [String: Int] {
        get throws {
            var versions: [String: Int] = [:]
            for (name, bytes) in stored {
                guard
                    case .integer(let version)? = try JSONNode(json: bytes).value["signed"]?[
                        "version"
                    ]
                else { continue }
                versions[String(name.dropLast(5))] = Int(version)
            }
            return versions
        }
    }

    @discardableResult
    mutating func refresh(from repository: TestRepository) throws(TrustError) -> TrustedMetadata {
        try refresh { repository.files[$0] }
    }

    @discardableResult
    mutating func refresh(
        from server: (String) -> [UInt8]?
    ) throws(TrustError) -> TrustedMetadata {
        guard let metadata = try refresh(from: server, changes: .max) else {
            preconditionFailure("a refresh without end")
        }
        return metadata
    }

    /// Refreshes until the storage was changed `count` times, as before a crash.
    mutating func crash(
        afterChanges count: Int,
        of repository: TestRepository
    ) throws(TrustError) {
        _ = try refresh(from: { repository.files[$0] }, changes: count)
    }

    private mutating func refresh(
        from server: (String) -> [UInt8]?,
        changes limit: Int
    ) throws(TrustError) -> TrustedMetadata? {
        requests = []
        changes = []
        var refresh = try MetadataRefresh(
            from: StoredMetadata(
                root: stored["root.json"] ?? [],
                timestamp: stored["timestamp.json"],
                snapshot: stored["snapshot.json"],
                targets: stored["targets.json"]
            ),
            at: time,
            limits: limits
        )
        while changes.count < limit {
            switch try refresh.next() {
            case .fetch(let file):
                requests.append(file.path)
                if let bytes = server(file.path) {
                    refresh.accept(bytes)
                } else {
                    refresh.notFound()
                }
            case .store(let role, let bytes):
                changes.append(role.fileName)
                stored[role.fileName] = bytes
            case .remove(let role):
                changes.append("-" + role.fileName)
                stored[role.fileName] = nil
            case .done(let metadata): return metadata
            }
        }
        return nil
    }

    /// Refreshes, then searches for a target.
    mutating func target(
        _ path: String,
        in repository: TestRepository
    ) throws(TrustError) -> Target? {
        let metadata = try refresh(from: repository)
        requests = []
        return try search(for: path, in: metadata, of: repository)
    }

    mutating func search(
        for path: String,
        in metadata: TrustedMetadata,
        of repository: TestRepository
    ) throws(TrustError) -> Target? {
        var search = TargetSearch(for: TargetPath(path), in: metadata, limits: limits)
        while true {
            switch try search.next() {
            case .load(let role):
                if let bytes = stored[role.fileName] {
                    search.accept(bytes)
                } else {
                    search.notFound()
                }
            case .fetch(let file):
                requests.append(file.path)
                if let bytes = repository.files[file.path] {
                    search.accept(bytes)
                } else {
                    search.notFound()
                }
            case .store(let role, let bytes): stored[role.fileName] = bytes
            case .found(let target): return target
            case .absent: return nil
            }
        }
    }
}
