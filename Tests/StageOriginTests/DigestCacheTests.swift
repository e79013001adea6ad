import StageModel
import StageSystem
import SystemPackage
import Testing

@testable import StageOrigin

@Suite
struct DigestCacheTests {
    /// Programs of the system, since a digest is kept only of a file that did not change a moment ago.
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
