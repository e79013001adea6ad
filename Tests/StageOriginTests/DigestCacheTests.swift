import StageModel
import StageSystem
import SystemPackage
import Testing

@testable import StageOrigin

@Suite
struct DigestCacheTests {
    /// The files are programs of the system, since the cache keeps no digest of a recently changed file.
    @Test func aFullCacheDropsItsOldestDigestOnly() async throws {
        let cache = DigestCache(capacity: 2)
        var identities: [FileIdentity] = []
        for name in ["cat", "ls", "sh"] {
            let file = SharedFile(try File.open(reading: FilePath("/bin/\(name)")))
            identities.append(try #require(try await cache.digest(of: file)).identity)
        }
        let known = await cache.known
        #expect(Set(known.keys) == Set(identities[1...2]))
    }
}
