import Glibc
import StageSystem
import StageTesting
import SystemPackage
import Testing

@Suite(.directory) struct FileCopyTests {
    private let directory: Directory

    init() throws { directory = try TemporaryDirectory.required() }

    /// A file system that supports reflinks, if the machine has a program to create it.
    struct CloningDisk: CustomTestStringConvertible {
        var name: String
        var testDescription: String { name }
        var program: String { "/usr/sbin/mkfs.\(name)" }

        static let available = ["btrfs", "xfs"].map { CloningDisk(name: $0) }
            .filter { geteuid() == 0 && FileStatus.exists(FilePath($0.program)) }
    }

    /// Runs a shell script in the test's directory, and returns its output.
    private func run(_ script: String) throws -> String {
        let log = directory.path.appending("log")
        let text = "set -e; cd '\(directory.path)'; \(script)"
        let process = try StartedProcess(["/bin/sh", "-c", text], log: log)
        #expect(process.end() == 0)
        let file = try File.open(reading: log)
        return String(decoding: try file.readAll(limit: 1 << 20), as: UTF8.self)
    }

    private func copy(in folder: String) throws {
        let source = try File.open(reading: directory.path.appending(folder).appending("a"))
        let target = try Directory.open(directory.path.appending(folder))
            .file(creating: "b", permissions: .privateFile)
        try target.copyContent(of: source)
        try target.synchronize()
    }

    @Test(.enabled(if: !CloningDisk.available.isEmpty), arguments: CloningDisk.available)
    func aCopySharesItsBlocksWhereTheDiskCan(_ disk: CloningDisk) throws {
        _ = try run(
            """
            truncate -s 512M image; \(disk.program) -q image; mkdir disk; mount -o loop image disk
            head -c 5000001 /dev/urandom > disk/a; truncate -s 9000001 disk/a; sync -f disk
            """
        )
        defer { #expect(throws: Never.self) { try run("umount disk") } }
        try copy(in: "disk")
        let said = try run("cmp disk/a disk/b; filefrag -v disk/b | grep -E ' [0-9]+: '")
        let extents = said.split(separator: "\n").filter { $0.contains("..") }
        #expect(!extents.isEmpty && extents.allSatisfy { $0.contains("shared") }, "\(said)")
    }

    @Test func aCopyHasTheSameBytesWhereTheDiskSharesNone() throws {
        _ = try run(
            "mkdir plain; head -c 100001 /dev/urandom > plain/a; truncate -s 9000001 plain/a"
        )
        try copy(in: "plain")
        _ = try run("cmp plain/a plain/b")
    }

    @Test func aCopyHasALimit() throws {
        try directory.write([1, 2, 3], to: "a", durably: false)
        let source = try File.open(reading: directory.path.appending("a"))
        let copy = try directory.file(creating: "b", permissions: .privateFile)
        let error = #expect(throws: FileError.self) { try copy.copyContent(of: source, limit: 2) }
        #expect(error?.errno == .fileTooLarge)
        try copy.copyContent(of: source, limit: 3)
        #expect(try copy.status().size == 3)
    }
}
