import DecoderAttempts
import Glibc
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

    @Test func aFileIsWrittenAfterTheLatestTime() throws {
        try root.write([1], to: "a", durably: false, modifiedAfter: .max)
        #expect(try root.status("a")?.size == 1)
    }

    @Test(.mountedFileSystems)
    func theStatusOfAMountPointIsNotRead() throws {
        for name in ["plain", "mounted", "other"] as [FilePath.Component] {
            try root.write([1, 2], to: name, durably: false)
        }
        try root.createLink("link", to: "mounted")
        let path = root.path.appending("mounted").string
        let source = root.path.appending("other").string
        let status = unsafe mount(source, path, nil, UInt(MS_BIND), nil)
        try #require(status == 0)
        let error = #expect(throws: FileError.self) { try root.status(unmounted: "mounted") }
        unsafe #expect(umount2(path, CInt(MNT_DETACH)) == 0)
        #expect(error?.errno == .improperLink)
        #expect(try root.status(unmounted: "mounted")?.size == 2)
        #expect(try root.status(unmounted: "plain") == root.status("plain"))
        #expect(try root.status(unmounted: "link")?.kind == .link)
        #expect(try root.status(unmounted: "none") == nil)
    }

    @Test(arguments: [
        ("", Errno.invalidArgument), ("/", .invalidArgument), ("/file", .improperLink),
        ("../file", .improperLink), ("below/../../file", .improperLink),
        ("link/file", .notDirectory),
    ])
    func noPathLeavesTheDirectory(_ path: String, _ errno: Errno) throws {
        let inner = try Directory.make(root.path.appending("inner"))
        _ = try inner.makeDirectory("below")
        try inner.createLink("link", to: "..")
        try root.write([1], to: "file", durably: false)
        let name = FilePath(path)
        let errors = [
            #expect(throws: FileError.self) { try inner.status(name) },
            #expect(throws: FileError.self) { try inner.removeFile(name) },
            #expect(throws: FileError.self) { try inner.rename(name, over: "stolen") },
            #expect(throws: FileError.self) { try inner.createDirectory(name) },
        ]
        #expect(errors.map { $0?.errno } == Array(repeating: errno, count: 4))
        #expect(try bytes(of: root.path.appending("file")) == [1])
        #expect(try Set(inner.entries().map(\.path.string)) == ["below", "link"])
    }

    @Test
    func namesThatAreNoTextAreListedAndRemoved() throws {
        let name = unsafe ([0x61, -1, 0x62, 0] as [CChar]).withUnsafeBufferPointer { name in
            unsafe name.baseAddress.map { unsafe FilePath(platformString: $0) } ?? "none"
        }
        let tree = try Directory.make(root.path.appending("tree/below"))
        _ = try tree.file(creating: name)
        let entry = try #require(try tree.entries().first)
        #expect(entry.path == name && entry.name == name.lastComponent && entry.kind == .file)
        let above = try Directory.open(root.path.appending("tree"))
        #expect(try above.status(FilePath("below").pushing(name))?.kind == .file)
        #expect(try root.removeTree("tree"))
        #expect(try root.entries().isEmpty)
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

    /// Simulates a file system that cannot refuse to replace a name, such as many of FUSE.
    @Test
    func aNameThatIsTakenIsNotReplacedWhereTheKernelCannotRefuseIt() async {
        await #expect(processExitsWith: .success) {
            let name = try #require(FilePath.Component("stagepack-renames.\(getpid())"))
            let top = try Directory.open("/tmp")
            let directory = try top.makeDirectory(FilePath(name))
            defer { _ = try? top.removeTree(name) }
            try directory.write([1], to: "new", durably: false)
            try directory.write([2], to: "taken", durably: false)
            try #require(decoder_without_refused_renames() == 0)
            let error = #expect(throws: FileError.self) {
                try directory.rename("new", toUnused: "taken", in: directory)
            }
            try #require(error?.errno == .fileExists)
            try #require(try bytes(of: directory.path.appending("taken")) == [2])
            try directory.rename("new", toUnused: "unused", in: directory)
            try #require(try bytes(of: directory.path.appending("unused")) == [1])
        }
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
