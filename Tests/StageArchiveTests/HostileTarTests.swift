import StageArchive
import StageModel
import StageTesting
import Testing

/// Archives with entries that packs must not contain: each is refused, with an error that names the entry.
@Suite(.directory) struct HostileTarTests {
    struct Case: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var archive: [UInt8]
        var entry: String

        init(_ name: String, entry: String, _ entries: TarBuilder.Entry...) {
            var builder = TarBuilder()
            for entry in entries { builder.add(entry) }
            builder.finish()
            self.init(name, entry: entry, archive: builder.bytes)
        }

        init(_ name: String, entry: String, archive: [UInt8]) {
            testDescription = name
            self.archive = archive
            self.entry = entry
        }
    }

    static let names = [
        "../x", "a/../../x", "a/../x", "/x", "//x", "a//x", "a/./x", "..", "a/..", "a\\x", "a\nx",
        "a\u{1B}[2Jx", "a\u{202E}x", "a\u{7F}x", "C:\\x", "a/../", "././x", ".//x",
    ]

    @Test(arguments: names)
    func namesThatArePathsElsewhereAreRefused(name: String) async throws {
        var bench = try Bench()
        for kind in [TarBuilder.Kind.file, .directory, .link] {
            let tar = TarBuilder(.init(name, kind, target: "t"))
            guard case .notAllowed(let entry, _)? = try await bench.refusal(tar.bytes, .tar) else {
                Issue.record("'\(name.debugDescription)' as \(kind) was not refused")
                continue
            }
            #expect(entry == name)
        }
    }

    static let kinds: [Case] = [
        Case("character device", entry: "d", .init("d", .characterDevice)),
        Case("block device", entry: "d", .init("d", .blockDevice)),
        Case("fifo", entry: "d", .init("d", .fifo)),
        Case("set-user-id", entry: "s", .init("s", mode: 0o4755)),
        Case("set-group-id", entry: "s", .init("s", mode: 0o2755)),
        Case("sticky", entry: "s", .init("s", .directory, mode: 0o1777)),
        Case("link to the root", entry: "l", .init("l", .link, target: "/etc/passwd")),
        Case("link outside", entry: "l", .init("l", .link, target: "../x")),
        Case("link outside, deeper", entry: "a/l", .init("a/l", .link, target: "b/../../../x")),
        Case("link without target", entry: "l", .init("l", .link)),
        Case("link with a control character", entry: "l", .init("l", .link, target: "a\u{1B}")),
        Case(
            "a link that leads outside through another one",
            entry: "a",
            .init("x/b", .link, target: ".."),
            .init("a", .link, target: "x/b/..")
        ),
        Case(
            "a link that leads outside through two others",
            entry: "y/a",
            .init("x/b", .link, target: "../y/c"),
            .init("y/c", .link, target: "../x/.."),
            .init("y/a", .link, target: "../x/b/z/../..")
        ),
        Case(
            "links in a circle",
            entry: "a",
            .init("a", .link, target: "b"),
            .init("b", .link, target: "a")
        ),
        Case("a link to itself", entry: "a", .init("a", .link, target: "a")),
        Case("hard link outside", entry: "h", .init("h", .hardLink, target: "../canary")),
        Case("hard link to the root", entry: "h", .init("h", .hardLink, target: "/etc/passwd")),
        Case("hard link to nothing", entry: "h", .init("h", .hardLink, target: "x")),
        Case("hard link to itself", entry: "h", .init("h", .hardLink, target: "h")),
        Case(
            "hard link to a directory",
            entry: "h",
            .init("d", .directory),
            .init("h", .hardLink, target: "d")
        ),
        Case(
            "hard link to a link",
            entry: "h",
            .init("f"),
            .init("l", .link, target: "f"),
            .init("h", .hardLink, target: "l")
        ),
        Case(
            "hard link before its file",
            entry: "h",
            .init("h", .hardLink, target: "f"),
            .init("f")
        ),
        Case(
            "sparse file",
            entry: "s",
            archive: {
                var builder = TarBuilder()
                builder.addSparse("s", size: 1 << 30)
                builder.finish()
                return builder.bytes
            }()
        ),
        Case(
            "33 components",
            entry: (0..<33).map { _ in "d" }.joined(separator: "/"),
            .init((0..<33).map { _ in "d" }.joined(separator: "/"))
        ),
    ]

    @Test(arguments: kinds)
    func disallowedEntriesAreRefused(archive: Case) async throws {
        var bench = try Bench()
        let error = try await bench.refusal(archive.archive, .tar)
        guard case .notAllowed(let entry, _)? = error else {
            Issue.record("found \(String(describing: error))")
            return
        }
        #expect(entry == archive.entry)
    }

    static let conflicts: [(String, [TarBuilder.Entry], ArchiveError)] = [
        ("file twice", [.init("a"), .init("a")], .collision(entry: "a", .sameName)),
        (
            "file and link", [.init("a"), .init("a", .link, target: "b")],
            .collision(entry: "a", .sameName)
        ),
        (
            "link twice",
            [.init("a", .link, target: "b"), .init("a", .link, target: "b")],
            .collision(entry: "a", .sameName)
        ),
        (
            "file, then directory", [.init("a"), .init("a/b")],
            .collision(entry: "a", .fileAndDirectory)
        ),
        (
            "directory, then file", [.init("a/b"), .init("a")],
            .collision(entry: "a", .fileAndDirectory)
        ),
        (
            "file, then same directory", [.init("a"), .init("a", .directory)],
            .collision(entry: "a", .fileAndDirectory)
        ),
        (
            "link, then file through it",
            [.init("a", .link, target: "b"), .init("b/x"), .init("a/x")],
            .collision(entry: "a", .fileAndDirectory)
        ),
        (
            "deep",
            [.init("a/b/c"), .init("a/b/c/d/e/f")],
            .collision(entry: "a/b/c", .fileAndDirectory)
        ),
    ]

    @Test(arguments: conflicts)
    func namesThatCollideAreRefused(
        name: String,
        entries: [TarBuilder.Entry],
        expected: ArchiveError
    ) async throws {
        var builder = TarBuilder()
        for entry in entries { builder.add(entry) }
        builder.finish()
        var bench = try Bench()
        #expect(try await bench.refusal(builder.bytes, .tar) == expected)
    }

    @Test func namesThatAreNotUTF8AreRefused() async throws {
        var entry = TarBuilder.Entry("a")
        entry.name = [0x61, 0xFF, 0x62]
        var bench = try Bench()
        let error = try await bench.refusal(TarBuilder(entry).bytes, .tar)
        guard case .notAllowed(let entry, _)? = error else {
            Issue.record("found \(String(describing: error))")
            return
        }
        #expect(entry == "a\u{FFFD}b")
    }
}
