import StageSystem
import StageTesting
import SystemPackage
import Testing

@Suite(.directory)
struct TemporaryFileTests {
    private let directory: Directory

    init() throws { directory = try TemporaryDirectory.required() }

    private var names: [String] {
        get throws { try directory.entries().map(\.path.string).sorted() }
    }

    @Test func aFileThatAKilledProcessLeftIsRemoved() throws {
        // The other names belong to other files.
        let mark = "0x9y0x9y0x9y"
        let others = [
            ".archive.draft.tmp", ".archive.tar.\(mark).tmp", ".other.\(mark).tmp", "archive",
            "archive.\(mark).tmp",
        ]
        for name in others + [".archive.\(mark).tmp", ".archive.1\(mark).tmp"] {
            _ = try directory.file(creating: FilePath(name))
        }
        let temporary = try TemporaryFile.make(for: "archive", in: directory)
        let name = temporary.name.string
        #expect(try names == (others + [name]).sorted())
        _ = consume temporary
    }

    /// The temporary name is longer than a file system permits.
    @Test func anErrorNamesTheFileThatWasToBeWritten() throws {
        let name = try #require(FilePath.Component(String(repeating: "x", count: 250)))
        let path = directory.path.appending(name)
        let error = FileError("create", path: path, errno: .fileNameTooLong)
        #expect(throws: error) { _ = try TemporaryFile.make(for: name, in: directory) }
        #expect(throws: error) { try directory.write([1], to: name, durably: false) }
        #expect(throws: error) { try directory.replaceLink(name, to: "target") }
    }

    @Test func aFileHasItsFinalPathForLaterErrors() throws {
        let temporary = try TemporaryFile.make(for: "archive", in: directory)
        let path = temporary.file.path
        #expect(path == directory.path.appending("archive"))
        let unnamed = try directory.file(creating: "draft", for: nil)
        let pathOfUnnamed = unnamed.path
        #expect(pathOfUnnamed == directory.path)
        #expect(try directory.status("draft")?.kind == .file)
        _ = consume temporary
    }

    @Test func anErrorOfTheRenameNamesTheFinalFile() throws {
        _ = try directory.makeDirectory("archive")
        let path = directory.path.appending("archive")
        let error = FileError("create", path: path, errno: .isDirectory)
        #expect(throws: error) { try directory.write([1], to: "archive", durably: false) }
        #expect(throws: error) { try directory.replaceLink("archive", to: "target") }
        #expect(try names == ["archive"])
    }

    @Test func aFileInUseStays() throws {
        let first = try TemporaryFile.make(for: "archive", in: directory)
        let second = try TemporaryFile.make(for: "archive", in: directory)
        let both = [first.name.string, second.name.string].sorted()
        #expect(try names == both)
        _ = consume second
        let third = try TemporaryFile.make(for: "archive", in: directory)
        let rest = [first.name.string, third.name.string].sorted()
        #expect(try names == rest)
        _ = consume first
        _ = consume third
    }
}
