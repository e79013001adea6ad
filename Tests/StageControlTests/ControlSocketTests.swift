import Glibc
import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Paths of the control socket, for the daemon and for its clients.
@Suite(.directory)
struct ControlSocketTests {
    /// A user other than root, whose directory this process can create.
    private static let user: UInt32 = geteuid() == 0 ? 4711 : geteuid()

    private static func directory(
        _ environment: [String: String],
        in folder: FilePath,
        of user: UInt32 = user
    ) -> String? {
        ControlSocket.runtimeDirectory(environment: environment, of: user, in: folder)
    }

    @Test func withoutTheVariableTheDirectoryOfTheUserCounts() throws {
        let folder = try TemporaryDirectory.required()
        let name = FilePath("\(Self.user)")
        let own = try folder.makeDirectory(name).path
        if geteuid() == 0 { #expect(unsafe chown(own.string, Self.user, Self.user) == 0) }
        let home = ["HOME": "/home/user"]
        #expect(Self.directory(home, in: folder.path) == own.string)
        #expect(Self.directory(["XDG_RUNTIME_DIR": "/elsewhere"], in: folder.path) == "/elsewhere")
        // A relative path is ignored (XDG Base Directory Specification).
        #expect(Self.directory(["XDG_RUNTIME_DIR": "here"], in: folder.path) == own.string)
    }

    @Test func aDirectoryOfAnotherUserDoesNotCount() throws {
        let folder = try TemporaryDirectory.required()
        _ = try folder.makeDirectory(FilePath("4712"))
        let home = ["HOME": "/home/user"]
        let state = "/home/user/.local/state/stagepack"
        #expect(Self.directory(home, in: folder.path, of: 4712) == state)
        #expect(Self.directory(["XDG_STATE_HOME": "/s"], in: folder.path) == "/s/stagepack")
        #expect(Self.directory([:], in: folder.path) == nil)
    }

    @Test func rootHasTheDaemonOfTheSystem() throws {
        let folder = try TemporaryDirectory.required()
        _ = try folder.makeDirectory(FilePath("0"))
        #expect(Self.directory(["HOME": "/root"], in: folder.path, of: 0) == nil)
    }
}
