import FoundationEssentials
import Logging
import StageContainer
import StageDigest
import StageEngine
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import StageTransfer
import Synchronization
import SystemPackage
import Testing

/// A publisher's tree and store, a server, and a container.
final class IndexedWorld {
    let root: Directory
    let store: Directory
    let server = TestServer.current
    private(set) var previous = ContentIndex()
    /// The versions before the previous one, the newest first.
    private(set) var older: [ContentIndex] = []
    private(set) var pack: Pack?
    private var revision = 0

    init(in name: FilePath = ".") throws {
        root = try TemporaryDirectory.required().makeDirectory(name)
        store = try root.makeDirectory("store")
    }

    /// Packages files, by their paths, as the next version; files that end in `.sh` are executable.
    @discardableResult
    func publish(
        _ files: [String: [UInt8]],
        links: [String: String] = [:],
        directories: [String] = [],
        deltas: Bool = true,
        fromAllVersions: Bool = false,
        patches: Bool = false,
        partSize: ByteCount? = nil,
        archive: Bool = false
    ) async throws -> IndexedPack {
        revision += 1
        let packaged = try await Publications.shared.publish(
            PublicationRequest(
                files: files,
                links: links,
                directories: directories,
                makesDeltas: deltas,
                makesPatches: patches,
                partSize: partSize,
                makesArchive: archive,
                previous: previous,
                older: fromAllVersions ? older : []
            ),
            from: root.path.appending("source-\(revision)").string,
            to: store
        )
        if !previous.entries.isEmpty { older.insert(previous, at: 0) }
        previous = packaged.index
        pack = packaged.pack(version: revision)
        try serve()
        return packaged
    }

    /// Makes the server respond to requests for all files of the store, and for a manifest.
    func serve(
        mirrors: [String] = [],
        offering offered: Pack? = nil,
        as ids: [PackID] = [],
        changing change: (Answer) -> Answer = { $0 }
    ) throws {
        for path in ["a", "b", "d", "i", "p"].flatMap({ objects(in: $0) }) {
            let bytes = try bytes(of: store.path.appending(String(path.dropFirst())))
            server.answer(path, with: change(.content(bytes)))
        }
        let pack = try #require(offered ?? pack)
        let copies = ids.map { id in
            var copy = pack
            copy.id = id
            return copy
        }
        let manifest = Manifest(
            application: try ApplicationID("net.example.game"),
            revision: revision,
            baseURLs: mirrors,
            packs: copies.isEmpty ? [pack] : copies
        )
        server.answer("/manifest.json", with: .content(manifest.json()))
        try store.write(manifest.json(), to: "manifest.json", durably: false)
    }

    /// Indicates whether the manifest and the objects are read from the store's folder, and not from the server.
    var readsFolder = false

    /// Indicates whether plans permit archives instead of objects that have failed.
    var mayReplaceObjects = true

    /// The space that plans have for packs, instead of what these need.
    var plannedSpace: [PackID: ByteCount] = [:]

    private var source: ManifestSource {
        let folder = "file://\(store.path)/manifest.json"
        return ManifestSource(urls: [readsFolder ? folder : server.url("/manifest.json")])
    }

    /// Makes the server offer the files as one archive instead of an index.
    func offerArchive(of files: [String: [UInt8]]) throws -> Pack {
        var tar = TarBuilder()
        for (path, bytes) in files { tar.add(TarBuilder.Entry(path, content: bytes)) }
        tar.finish()
        server.answer("/levels.tar", with: .content(tar.bytes))
        let archive = PackArchive(
            url: "levels.tar",
            format: .tar,
            size: ByteCount(tar.bytes.count),
            digest: Digest(of: tar.bytes)
        )
        var pack = try #require(pack)
        pack.index = nil
        pack.archive = archive
        try serve(offering: pack)
        return pack
    }

    /// Fetches one file of the pack of the manifest.
    func fetchFile(_ path: String, _ name: String = "container") async throws -> FilePath {
        let container = try Container.make(root.path.appending(name))
        let (path, id) = (try ContentPath(path), try PackID("levels"))
        return try await withStager(try options, logger: logger) { stager in
            let manifest = try await stager.manifest(from: source, stored: nil)
            return try await stager.fetchFile(path, of: id, from: manifest, in: container)
        }
    }

    /// The lines that were logged.
    let log = Lines()

    /// Log lines in the order of their arrival.
    final class Lines: Sendable {
        private let lines = Mutex<[String]>([])

        var all: [String] { lines.withLock(\.self) }

        func append(_ line: String) { lines.withLock { $0.append(line) } }
    }

    private var logger: Logger {
        Logger(label: "test") { [log] label in
            LineLogHandler(label: label, isForJournal: false) { line, _ in log.append(line) }
        }
    }

    private var options: StagerOptions {
        get throws {
            var options = StagerOptions(now: { 1_700_000_000 })
            options.transfer.retry.base = .milliseconds(1)
            options.transfer.retry.maximumAttempts = 2
            // As root, archives are unpacked only in a separate process.
            options.unpacking = .process(
                try BuiltProgram.path(ofTestProgram: "unpack-service"),
                arguments: ["unpack-service"]
            )
            return options
        }
    }

    /// Stages the pack of the manifest.
    func stage(
        _ name: String = "container",
        repairing: Bool = false,
        report: @escaping @Sendable (StagingEvent) -> Void = { _ in }
    ) async throws -> StagingOutcome {
        let id = try PackID("levels")
        let outcomes = try await stage([id], in: name, repairing: repairing) { report($1) }
        return outcomes[id] ?? .alreadyStaged
    }

    /// Stages packs of the manifest.
    func stage(
        _ ids: [PackID],
        in name: String = "container",
        repairing: Bool = false,
        report: @escaping @Sendable (PackID, StagingEvent) -> Void
    ) async throws -> [PackID: StagingOutcome] {
        let container = try Container.make(root.path.appending(name))
        return try await withStager(try options, logger: logger) { stager in
            let manifest = try await stager.manifest(from: source, stored: nil)
            let planner = try Planner(manifest: manifest.manifest, container: container)
            var plan = planner.plan(for: repairing ? .repair(Set(ids)) : .packs(Set(ids)))
            for index in plan.entries.indices {
                plan.entries[index].mayReplaceObjects = mayReplaceObjects
                if let space = plannedSpace[plan.entries[index].pack.id] {
                    plan.entries[index].space = space
                }
            }
            return await stager.stage(plan, of: manifest, in: container, report: report)
        }
    }

    /// Plans the pack of the manifest, and stages it after `body`; stores the manifest that is offered by then if
    /// `storesManifest` is set.
    func stagePlan(
        storesManifest: Bool,
        after body: () async throws -> Void
    ) async throws -> StagingOutcome? {
        let container = try Container.make(root.path.appending("container"))
        let id = try PackID("levels")
        return try await withStager(try options, logger: logger) { stager in
            let manifest = try await stager.manifest(from: source, stored: nil)
            let planner = try Planner(manifest: manifest.manifest, container: container)
            try await body()
            if storesManifest {
                let newer = try await stager.manifest(from: source, stored: nil)
                try container.store(newer.record, for: newer.manifest.application)
            }
            let plan = planner.plan(for: .packs([id]))
            return await stager.stage(plan, of: manifest, in: container) { _, _ in }[id]
        }
    }

    /// Plans the pack of the manifest with some free space and free inodes, and returns the planned transfer.
    func estimate(
        _ name: String = "container",
        freeSpace: ByteCount,
        freeInodes: Int? = nil
    ) async throws -> TransferChoice.Way? {
        let id = try PackID("levels")
        return try await estimate([id], in: name, freeSpace: freeSpace, freeInodes: freeInodes)[id]
    }

    /// Plans the pack of the manifest with much free space, and returns the planned transfer.
    func plannedTransfer() async throws -> (choice: TransferChoice, size: ByteCount)? {
        let plan = try await plan(
            [PackID("levels")],
            in: "container",
            freeSpace: .mebibytes(1 << 20)
        )
        guard let entry = plan.entries.first, let choice = entry.transfer else { return nil }
        return (choice, entry.transferSize)
    }

    /// Plans packs of the manifest with some free space and free inodes, and returns the planned transfers.
    func estimate(
        _ ids: [PackID],
        in name: String = "container",
        freeSpace: ByteCount,
        freeInodes: Int? = nil
    ) async throws -> [PackID: TransferChoice.Way] {
        let plan = try await plan(ids, in: name, freeSpace: freeSpace, freeInodes: freeInodes)
        var ways: [PackID: TransferChoice.Way] = [:]
        for entry in plan.entries { ways[entry.pack.id] = entry.transfer?.way }
        return ways
    }

    private func plan(
        _ ids: [PackID],
        in name: String,
        freeSpace: ByteCount,
        freeInodes: Int? = nil
    ) async throws -> Plan {
        let container = try Container.make(root.path.appending(name))
        return try await withStager(try options, logger: logger) { stager in
            let manifest = try await stager.manifest(from: source, stored: nil)
            let planner = try Planner(manifest: manifest.manifest, container: container)
            return await stager.estimate(
                planner.plan(for: .packs(Set(ids))),
                of: manifest,
                in: container.reader,
                available: AvailableSpace(bytes: freeSpace, inodes: freeInodes)
            )
        }
    }

    /// The staged files by their paths; a link is `path → target`, an empty directory `path/`.
    func staged(_ name: String = "container") throws -> [String: [UInt8]] {
        var files: [String: [UInt8]] = [:]
        try list(root.path.appending("\(name)/packs/levels"), "", into: &files)
        return files
    }

    private func list(
        _ path: FilePath,
        _ prefix: String,
        into files: inout [String: [UInt8]]
    ) throws {
        let directory = try Directory.open(path)
        let entries = try directory.entries()
        if entries.isEmpty { files[prefix] = [] }
        for entry in entries {
            let location = prefix + entry.path.string
            switch entry.kind {
            case .directory: try list(path.appending(entry.name), location + "/", into: &files)
            case .link: files["\(location) → \(try directory.link(entry.name) ?? "")"] = []
            case .file, .other: files[location] = try bytes(of: path.appending(entry.name))
            }
        }
    }

    /// The file of the current generation.
    func path(of file: String, _ name: String = "container") -> FilePath {
        root.path.appending("\(name)/packs/levels/\(file)")
    }

    /// The number of body bytes of bundles that the server has sent.
    var bundleBytes: Int { bundles.reduce(0) { $0 + server.counts(for: $1).bytes } }
    /// The requests for bundles.
    var bundleRequests: Int { bundles.reduce(0) { $0 + server.counts(for: $1).requests } }
    /// The paths of the bundles on the server.
    var bundles: [String] { objects(in: "b") }
    /// The paths of the delta sets on the server.
    var deltaSets: [String] { objects(in: "d") }
    /// The number of body bytes of delta sets that the server has sent.
    var deltaBytes: Int { deltaSets.reduce(0) { $0 + server.counts(for: $1).bytes } }
    /// The requests for delta sets.
    var deltaRequests: Int { deltaSets.reduce(0) { $0 + server.counts(for: $1).requests } }

    /// The paths of the archives on the server.
    var archives: [String] { objects(in: "a") }
    /// The number of body bytes of archives that the server has sent.
    var archiveBytes: Int { archives.reduce(0) { $0 + server.counts(for: $1).bytes } }
    /// The requests for archives.
    var archiveRequests: Int { archives.reduce(0) { $0 + server.counts(for: $1).requests } }

    /// The paths of the patches on the server.
    var patches: [String] { objects(in: "p") }

    private func objects(in folder: String) -> [String] {
        let names = try? FileManager.default.contentsOfDirectory(atPath: "\(store.path)/\(folder)")
        return (names ?? []).sorted().map { "/\(folder)/\($0)" }
    }
}

extension IndexedWorld {
    /// Returns the bytes of an object, by its path on the server.
    func object(_ path: String) throws -> [UInt8] {
        try bytes(of: store.path.appending(String(path.dropFirst())))
    }

    /// Offers another patch from the staged version, under its own digest; `nil` means the window of the previous patch.
    func offerPatch(_ content: [UInt8], windowSize: ByteCount? = nil) throws {
        var pack = try #require(pack)
        let digest = Digest(of: content)
        var patch = try #require(pack.index?.deltas[0].patch)
        patch.url = "p/\(digest)"
        patch.size = ByteCount(content.count)
        patch.digest = digest
        if let windowSize { patch.windowSize = windowSize }
        pack.index?.deltas[0].patch = patch
        server.answer("/\(patch.url)", with: .content(content))
        try serve(offering: pack)
    }
}

extension TestServer {
    /// Opens a gate once an object was requested, whose URL is relative to the server; fails if that takes too long.
    func open(_ gate: Gate, afterRequestFor url: String) async throws {
        defer { gate.open() }
        try await poll { counts(for: "/" + url).requests > 0 }
    }
}

/// Two trees: the second has changes in a large file and in small ones, and one of these under a second name.
func changedTrees(largeSize: Int) -> (old: [String: [UInt8]], new: [String: [UInt8]]) {
    var old = ["large": noise(largeSize), "same": noise(100_000, seed: 2)]
    for number in 0..<20 { old["small/\(number)"] = noise(3000, seed: UInt64(number + 10)) }
    var new = old
    for offset in stride(from: 5000, to: largeSize, by: 50_000) { new["large"]?[offset] ^= 1 }
    for number in 0..<20 { new["small/\(number)"]?[500] ^= 1 }
    new["copy/3"] = new["small/3"]
    return (old, new)
}

/// Writes over part of a file.
func overwrite(_ path: FilePath, _ bytes: [UInt8], at offset: Int64) throws {
    let descriptor = try FileDescriptor.open(path, .writeOnly)
    try descriptor.closeAfter { _ = try descriptor.writeAll(toAbsoluteOffset: offset, bytes) }
}
