import StageContainer
import StageModel
import StageSystem
import SystemPackage
import Testing

/// The manifests that a process caches, so that it reads only changed ones.
@Suite(.container) struct ManifestCacheTests {
    private static let application = ApplicationID(unchecked: "net.example")
    /// A time later than the modification of any file.
    private static let later = Int64.max

    private let container: Container

    init() throws { container = try Container.make(ContainerTrait.path) }

    private func store(
        _ text: String,
        for application: ApplicationID = Self.application
    ) throws {
        let manifest = StoredManifest(
            url: "https://example.org/m",
            resolvedURL: "https://example.org/m",
            entityTag: nil,
            receivedAt: 1,
            text: text
        )
        try container.store(manifest, for: application)
    }

    private func identity() throws -> FileIdentity {
        let name = FilePath("manifest/\(Self.application).json")
        return try #require(try container.root.identity(of: name))
    }

    /// Returns how often the record is read in three passes.
    private func reads(at now: Int64) throws -> Int {
        try store("{}")
        let identity = try identity()
        var cache = ManifestCache()
        var count = 0
        for _ in 0..<3 {
            cache.begin(at: now)
            let record = try cache.record(of: identity) { () throws(ContainerError) in
                count += 1
                return try container.storedManifest(for: Self.application)
            }
            #expect(record?.text == "{}")
        }
        return count
    }

    @Test func aFileIsReadOnceWhileItDoesNotChange() throws {
        #expect(try reads(at: Self.later) == 1)
    }

    @Test func aFileThatChangedJustNowIsReadAgain() throws {
        #expect(try reads(at: 0) == 3)
    }

    @Test func aFileThatAPassDoesNotFindIsForgotten() throws {
        try store("{}")
        let identity = try identity()
        var cache = ManifestCache()
        var count = 0
        for _ in 0..<2 {
            cache.begin(at: Self.later)
            _ = try cache.record(of: identity) { () throws(ContainerError) in
                count += 1
                return nil
            }
            cache.begin(at: Self.later)
        }
        #expect(count == 2)
    }

    @Test func aRecordThatWasReplacedIsTheNewOne() throws {
        let other = ApplicationID(unchecked: "net.other")
        let view = try ContainerView(opening: [container.root.path])
        var cache = ManifestCache()
        try store("1")
        try store("2", for: other)
        var texts = try view.storedManifests(reusing: &cache, at: Self.later)
            .mapValues(\.record.text)
        #expect(texts == [Self.application: "1", other: "2"])
        try store("3")
        texts = try view.storedManifests(reusing: &cache, at: Self.later).mapValues(\.record.text)
        #expect(texts == [Self.application: "3", other: "2"])
        #expect(try view.storedManifests().mapValues(\.record.text) == texts)
    }
}
