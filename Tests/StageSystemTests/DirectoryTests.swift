import StageSystem
import SystemPackage
import Testing

@Suite struct DirectoryTests {
    @Test func nothing() throws {
        let directory = try Directory.open("/tmp")
        #expect(try directory.status("no-such-file") == nil)
    }
}
