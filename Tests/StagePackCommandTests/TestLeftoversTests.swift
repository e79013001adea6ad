import Glibc
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The script that removes the directories of killed test runs before the next one.
@Suite(.directory)
struct TestLeftoversTests {
    private let folder: Directory
    /// A process ID that no process has: the kernel's maximum.
    private let dead = 4_194_304

    init() throws { folder = try TemporaryDirectory.required() }

    /// Runs the script on what matches a pattern in the directory of the test; the shell runs `setup` first.
    private func removeLeftovers(
        matching pattern: String = "*",
        after setup: String = ":"
    ) async throws {
        let script = FilePath(#filePath).removingLastComponent().removingLastComponent()
            .removingLastComponent().appending("Scripts/test-leftovers")
        let command = #"cd "$1" && \#(setup) && exec "$0" "$1"/\#(pattern)"#
        let program = Program(wrapper: [
            "/usr/bin/unshare", "-m", "/bin/sh", "-c", command, script.string, folder.path.string,
        ])
        let ending = try await program.run([])
        #expect(ending == Program.Ending(status: 0, output: "", error: ""))
    }

    private var names: Set<String> {
        get throws { try Set(folder.entries().map(\.path.string)) }
    }

    @Test(.mountNamespace)
    func onlyDirectoriesOfDeadProcessesAreRemoved() async throws {
        let kept = try folder.makeDirectory("kept")
        try kept.write([1], to: "file", durably: false)
        for name in ["stage-\(dead)-1", "\(dead)-2"] {
            try folder.makeDirectory(FilePath(name)).createLink("link", to: "../kept")
        }
        let locked = try folder.makeDirectory(FilePath("\(dead)-locked"))
        try locked.markAsUsed()
        try folder.createLink(FilePath("\(dead)-link"), to: "kept")
        let others = ["\(getpid())-1", "stage-\(getpid())-2", "stage-none-1", "other-\(dead)"]
        for name in others { _ = try folder.makeDirectory(FilePath(name)) }
        try await removeLeftovers()
        #expect(try names == Set(others + ["kept", "\(dead)-locked", "\(dead)-link"]))
        #expect(try bytes(of: kept.path.appending("file")) == [1])
        extendLifetime(locked)
    }

    @Test(.rootInMountNamespace)
    func theContentOfMountsStays() async throws {
        let kept = try folder.makeDirectory("kept")
        try kept.write([1], to: "file", durably: false)
        let setup = """
            mkdir -p "\(dead)-1/a b" && mount -t tmpfs none "\(dead)-1/a b" \
                && mkdir "\(dead)-1/a b/c" && mount --bind kept "\(dead)-1/a b/c"
            """
        try await removeLeftovers(after: setup)
        #expect(try names == ["kept"])
        #expect(try bytes(of: kept.path.appending("file")) == [1])
    }

    @Test(.rootInMountNamespace)
    func directoriesThatAnotherUserMayExchangeStay() async throws {
        let setup = """
            umask 022 && mkdir own theirs shared && mkdir -m 1777 sticky \
                && for name in *; do mkdir "$name/\(dead)-1"; done && mkdir "\(dead)-1" \
                && chmod 0777 shared && chown 23456 theirs "\(dead)-1" \
                && ln -s ../own sticky/link && chown -h 23456 sticky/link
            """
        // The first run uses the link that another user made; the second one the directories themselves.
        try await removeLeftovers(matching: "sticky/link/*", after: setup)
        #expect(remaining(in: ["own", "theirs", "shared", "sticky", "."]).count == 5)
        try await removeLeftovers(matching: "*/*")
        try await removeLeftovers()
        #expect(
            remaining(in: ["own", "theirs", "shared", "sticky", "."])
                == ["theirs", "shared", "."]
        )
    }

    /// Returns those of the folders that still have the directory of a dead process.
    private func remaining(in folders: [String]) -> [String] {
        folders.filter { FileStatus.existsAsEntry(folder.path.appending("\($0)/\(dead)-1")) }
    }
}
