import FoundationEssentials
import StageModel
import StageTesting
import Testing

@Suite struct ManifestPropertyTests {
    @Test func aCutManifestIsNeverAccepted() {
        let bytes = Array(Sample.manifest.utf8)
        for count in bytes.indices {
            #expect(throws: ManifestError.self) { try Manifest(json: Array(bytes[..<count])) }
        }
    }

    @Test func aCutRegistrationIsNeverAccepted() {
        let bytes = Array(Sample.registration.utf8)
        for count in bytes.indices {
            #expect(throws: ManifestError.self) { try Registration(json: Array(bytes[..<count])) }
        }
    }

    @Test func everyRegistrationIsReadAsItWasWritten() throws {
        let registration = try Registration(json: Array(Sample.registration.utf8))
        #expect(registration.restrictions?.essentialMaxInstallSize == ByteCount(4000))
        #expect(registration.restrictions?.downloadDomainAllowList?.count == 2)
        #expect(registration.downloaderExtension?.arguments == ["--quiet"])
        #expect(registration.backgroundEventsHandler == .init(path: "/usr/lib/wallpaper/events"))
        #expect(try Registration(json: registration.json()) == registration)
    }

    @Test(arguments: [1, 2, 3]) func everyManifestIsReadAsItWasWritten(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        for _ in 0..<50 {
            let manifest = try Self.manifest(&random)
            #expect(try Manifest(json: manifest.json()) == manifest)
        }
    }

    private static func manifest(
        _ random: inout some RandomNumberGenerator
    ) throws -> Manifest {
        var manifest = try Sample.expected()
        manifest.revision = Int.random(in: 0...Int.max, using: &random)
        if Bool.random(using: &random) { manifest.applicationVersion = nil }
        if Bool.random(using: &random) { manifest.baseURLs = [] }
        let events = InstallationEvent.allCases
        let policies: [DownloadPolicy] = [.onDemand, .essential(Set(events)), .prefetch([])]
        let texts: [String?] = [nil, "[]", #""\\ \"ü\n""#, #"{"a":{"b":[1.5,true,null]}}"#, "-7"]
        let counts: [Int?] = [nil, 0, 4120]
        let sample = manifest.packs[0]
        manifest.packs = try (0..<Int.random(in: 0...5, using: &random)).map { index in
            var pack = sample
            pack.id = try PackID("pack-\(index)")
            pack.version = Int.random(in: 1...Int.max, using: &random)
            pack.policy = policies.randomElement(using: &random) ?? .onDemand
            pack.directoryCount = counts.randomElement(using: &random) ?? nil
            pack.priority = Int.random(in: .min ... .max, using: &random)
            pack.userInfo = texts.randomElement(using: &random) ?? nil
            pack.archive?.fileName = Bool.random(using: &random) ? "Füssen.svg" : nil
            pack.archive?.format = ArchiveFormat.allCases.randomElement(using: &random) ?? .tar
            if pack.archive?.format == .tarZstandard, Bool.random(using: &random) {
                pack.archive?.windowSize = ByteCount(Int.random(in: 0...1 << 27, using: &random))
            }
            if Bool.random(using: &random) { addIndex(to: &pack, &random) }
            return pack
        }
        return manifest
    }

    private static func addIndex(to pack: inout Pack, _ random: inout some RandomNumberGenerator) {
        func digest() -> Digest {
            Digest(bytes: (0..<32).map { _ in UInt8.random(in: .min ... .max, using: &random) })
        }
        func size() -> ByteCount {
            ByteCount(Int64.random(in: 0...ManifestLimits.indexSize.rawValue, using: &random))
        }
        pack.index = PackIndex(
            url: "i/1",
            size: size(),
            digest: digest(),
            contentSize: size(),
            contentDigest: digest(),
            bundleSize: size(),
            deltas: (0..<Int.random(in: 0...3, using: &random)).map { _ in
                PackIndex.Delta(
                    base: digest(),
                    url: "i/2",
                    size: size(),
                    digest: digest(),
                    frames: Bool.random(using: &random)
                        ? PackIndex.DeltaFrames(
                            size: size(),
                            digest: digest(),
                            tableSize: min(size(), ManifestLimits.deltaTableSize),
                            tableDigest: digest()
                        ) : nil
                )
            }
        )
        if Bool.random(using: &random) { pack.archive = nil }
    }
}
