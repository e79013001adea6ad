import FoundationEssentials
import Glibc
import StageContainer
import StageModel
import StagePack
import StageSystem
import StageTesting
import SystemPackage

extension PackID {
    static let aurora = PackID(unchecked: "aurora")
    static let levels = PackID(unchecked: "levels")
}

/// Containers in the directory of the running test, to which the test publishes without a program.
struct SampleContainer {
    let path: FilePath

    /// Names a container of the running test, which need not exist.
    init(_ name: String = "container") throws {
        path = try TemporaryDirectory.required().path.appending(name)
    }

    /// Publishes a version of a pack; each file has one text as its content.
    func publish(_ id: PackID, version: Int, _ files: [FilePath.Component: String]) throws {
        let container = try Container.make(path)
        let lock = try waitForLock(id, in: container)
        let area = try container.makeStagingArea(lock)
        for (name, text) in files { try area.content.write(text, to: name) }
        for result in container.publish([(area, Self.record(id, version: version))]) {
            try result.get()
        }
    }

    /// Removes the generations of a pack that no process uses and that are not current.
    func removeObsoleteGenerations(of id: PackID) throws -> Int {
        let container = try Container.make(path)
        let lock = try waitForLock(id, in: container)
        return try container.removeObsoleteGenerations(lock, keeping: 0).generations
    }

    /// Changes the pack under its lock.
    func change<Value>(_ id: PackID, _ body: (Container, PackLock) throws -> Value) throws {
        let container = try Container.make(path)
        _ = try body(container, try waitForLock(id, in: container))
    }

    /// Stores a manifest that offers the pack as an indexed pack, and single files of its version.
    func keepSingleFiles(of id: PackID, _ files: [FilePath.Component: String]) throws {
        let container = try Container.make(path)
        let digest = Digest(bytes: [UInt8](repeating: 7, count: Digest.byteCount))
        let text = """
            {"manifestVersion": 1, "application": "net.example", "revision": 1, "packs": [{
              "id": "\(id)", "version": 1, "policy": {"onDemand": {}}, "installedSize": 4, "fileCount": 1,
              "index": {"url": "i/\(digest)", "size": 1, "sha256": "\(digest)", "contentSize": 1,
                "contentSHA256": "\(digest)", "bundleSize": 1}}]}
            """
        let manifest = StoredManifest(
            url: "https://example.org/m",
            resolvedURL: "https://example.org/m",
            entityTag: nil,
            receivedAt: 1,
            text: text
        )
        try container.store(manifest, for: ApplicationID("net.example"))
        guard let content = try container.makePartialContent(of: digest) else {
            throw Errno.noSuchFileOrDirectory
        }
        let directory = try content.directory.makeDirectory("content")
        for (name, text) in files { try directory.write(text, to: name) }
    }

    private static func record(_ id: PackID, version: Int) -> StagedPack {
        let digest = Digest(bytes: [UInt8](repeating: UInt8(version), count: Digest.byteCount))
        let archive = PackArchive(url: "a.tar", format: .tar, size: .zero, digest: digest)
        let pack = Pack(
            id: id,
            version: version,
            policy: .onDemand,
            archive: archive,
            installedSize: .zero,
            fileCount: 1
        )
        let manifest = Manifest(
            application: ApplicationID(unchecked: "net.example"),
            revision: 1,
            packs: [pack]
        )
        return StagedPack(pack, of: manifest, source: "file:", stagedAt: Int64(version))
    }

    private func waitForLock(_ id: PackID, in container: Container) throws -> PackLock {
        while true {
            if let lock = try container.attemptLock(id) { return lock }
            sched_yield()
        }
    }
}

extension Directory {
    fileprivate func write(_ text: String, to name: FilePath.Component) throws {
        try file(creating: FilePath(name)).write(Array(text.utf8).span, at: 0)
    }
}

/// A fetcher that calls closures of the test instead of a program.
struct SampleFetcher: PackFetcher {
    /// The work of the fetcher for a request of a store.
    typealias Body =
        @Sendable (PackID, FilePath, @escaping @Sendable (FetchProgress) -> Void) async throws
        -> Void

    var onFetch: Body
    var onFile: @Sendable (ContentPath, PackID, FilePath) async throws -> Void = { _, _, _ in
        throw FetchFailure(reason: "no file is fetched", retryAdvice: .never)
    }
    var onManifest: @Sendable () async throws -> Void = {}

    func fetch(
        _ id: PackID,
        into container: FilePath,
        beside others: [FilePath],
        report: @escaping @Sendable (FetchProgress) -> Void
    ) async throws {
        try await onFetch(id, container, report)
    }

    func fetchFile(_ path: ContentPath, of id: PackID, into container: FilePath) async throws {
        try await onFile(path, id, container)
    }

    func fetchManifest(into container: FilePath) async throws { try await onManifest() }
}

/// Blocks until its task is cancelled.
func waitForCancellation() async throws {
    let (stream, continuation) = AsyncStream.makeStream(of: Void.self)
    await withTaskCancellationHandler {
        for await _ in stream {}
    } onCancel: {
        continuation.finish()
    }
    throw CancellationError()
}

/// The text of a file below a directory.
func text(_ name: String, in directory: URL?) throws -> String? {
    guard let directory else { return nil }
    let data = try Data(contentsOf: directory.appending(path: name))
    return String(decoding: data, as: UTF8.self)
}
