import StageSystem
import StageTesting
import SystemPackage
import Testing

@Suite(.directory)
struct DirectoryTests {
    private let root: Directory

    init() throws { root = try TemporaryDirectory.required() }

    @Test
    func aNameThatIsMissingHasNoStatus() throws {
        let directory = try Directory.open(root.path)
        #expect(try directory.status("no-such-file") == nil)
    }

    @Test
    func directoriesAreMadeFromTheFirstThatIsMissing() throws {
        let path = root.path.appending("one").appending("two").appending("three")
        try Directory.make(path).write([1], to: "file", durably: false)
        try Directory.make(path).write([2], to: "other", durably: false)
        #expect(try bytes(of: path.appending("file")) == [1])
        #expect(try bytes(of: path.appending("other")) == [2])
    }

    @Test
    func aFileInThePlaceOfADirectoryIsAnError() throws {
        try Directory.open(root.path).write([1], to: "file", durably: false)
        for path in ["file", "file/below", "file/below/that"] {
            let error = try #require(throws: FileError.self) {
                try Directory.make(root.path.pushing(FilePath(path)))
            }
            #expect(error.errno == .notDirectory, "\(path)")
        }
        #expect(try bytes(of: root.path.appending("file")) == [1])
    }

    /// The kernel refuses '..' below a directory with EAGAIN while any file system object is being renamed:
    /// one call in 50 while one process renames without pause.
    @Test
    func aLinkUpwardsIsFollowedWhileOthersRename() async throws {
        let directory = try Directory.make(root.path.appending("tree/below"))
        try Directory.open(root.path.appending("tree")).write([1], to: "file", durably: false)
        try directory.createLink("up", to: "../file")
        let elsewhere = try Directory.make(root.path.appending("elsewhere"))
        try elsewhere.write([1], to: "1", durably: false)

        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                try await withCancellableThread { cancellation throws(FileError) in
                    while !cancellation.isRequested {
                        try elsewhere.rename("1", to: "2", in: elsewhere)
                        try elsewhere.rename("2", to: "1", in: elsewhere)
                    }
                }
            }
            let tree = try Directory.open(root.path.appending("tree"))
            for _ in 0..<20_000 {
                guard case .file = try tree.entry(following: "below/up") else {
                    Issue.record("the link leads to no file")
                    break
                }
            }
            group.cancelAll()
        }
    }
}
