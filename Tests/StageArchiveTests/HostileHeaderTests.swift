import StageArchive
import StageModel
import StageTesting
import Testing

/// Tar headers that contain more than libarchive reads: each is refused, with an error that names the entry.
@Suite(.directory) struct HostileHeaderTests {
    typealias Case = HostileTarTests.Case

    private static func archive(_ build: (inout TarBuilder) -> Void) -> [UInt8] {
        var builder = TarBuilder()
        build(&builder)
        builder.finish()
        return builder.bytes
    }

    static let zeros: [Case] = [
        Case(
            "name",
            entry: "a\u{0}b",
            archive: archive {
                $0.add(.init("before"))
                $0.add(.init("a\u{0}b"))
            }
        ),
        Case("name of a directory", entry: "a\u{0}b", .init("a\u{0}b", .directory)),
        Case("target", entry: "l", .init("l", .link, target: "a\u{0}b")),
        Case("target of a hard link", entry: "h", .init("h", .hardLink, target: "a\u{0}b")),
        Case(
            "path of an extended header",
            entry: "a\u{0}b",
            archive: archive {
                $0.addPax(("path", "a\u{0}b"))
                $0.add(.init("c"))
            }
        ),
        Case(
            "target of an extended header",
            entry: "l",
            archive: archive {
                $0.addPax(("linkpath", "a\u{0}b"))
                $0.add(.init("l", .link, target: "c"))
            }
        ),
        Case(
            "long name",
            entry: "a\u{0}b",
            archive: archive {
                $0.add(.init("././@LongLink", .longName, content: Array("a\u{0}b\u{0}".utf8)))
                $0.add(.init("c"))
            }
        ),
        Case(
            "long target",
            entry: "l",
            archive: archive {
                $0.add(.init("././@LongLink", .longTarget, content: Array("a\u{0}b\u{0}".utf8)))
                $0.add(.init("l", .link, target: "c"))
            }
        ),
    ]

    static let kinds: [Case] = "sSVMDNAXE9".map { flag in
        var entry = TarBuilder.Entry("t", content: [1])
        entry.flag = flag
        return Case("tar type '\(flag)'", entry: "t", entry)
    }

    static let attributes: [Case] = [
        "SCHILY.xattr.user.note", "SCHILY.xattr.security.capability", "LIBARCHIVE.xattr.user.a",
        "SCHILY.acl.access", "GNU.sparse.name", "GNU.volume.label", "unheard.of",
        "SCHILY.xattr.security.selinux2",
    ].map { key in
        Case(
            key,
            entry: "a",
            archive: archive {
                $0.addPax((key, "1"))
                $0.add(.init("a"))
            }
        )
    }

    @Test(arguments: zeros + kinds + attributes)
    func attributesThatWouldBeDroppedAreRefused(archive: Case) async throws {
        var bench = try Bench()
        for format in [ArchiveFormat.tar, .tarZstandard] {
            let error = try await bench.refusal(format.compress(archive.archive), format)
            guard case .notAllowed(let entry, _)? = error else {
                Issue.record("found \(String(describing: error))")
                continue
            }
            #expect(entry == archive.entry)
        }
    }

    @Test(arguments: ["path", "size", "linkpath", "SCHILY.xattr.user.a"])
    func attributesForAllEntriesAreRefusedIfTheyWouldChangeAny(key: String) async throws {
        let tar = Self.archive {
            $0.addPax(kind: .sharedPax, (key, "1"))
            $0.add(.init("a"))
        }
        var bench = try Bench()
        guard case .notAllowed("a", _)? = try await bench.refusal(tar, .tar) else {
            Issue.record("'\(key)' was not refused")
            return
        }
    }

    /// Attributes that distribution tools add, and those that record the author and time of an archive.
    @Test func irrelevantAttributesAreIgnored() async throws {
        let tar = Self.archive {
            $0.addPax(kind: .sharedPax, ("comment", "0f1e2d"))
            $0.addPax(
                ("mtime", "1700000000.5"),
                ("uname", "builder"),
                ("SCHILY.xattr.security.selinux", "system_u:object_r:usr_t:s0\u{0}"),
                ("RHT.security.selinux", "system_u:object_r:usr_t:s0\u{0}"),
                ("LIBARCHIVE.xattr.com.apple.provenance", "AQ=="),
                ("SCHILY.fflags", "nodump")
            )
            $0.add(.init("a", content: [1]))
        }
        var bench = try Bench()
        let (_, found) = try await bench.unpack(tar, .tar)
        #expect(found == Unpacked(["a": .file([1], isExecutable: false)]))
    }

    @Test func theSizeInAnExtendedHeaderIsUsed() async throws {
        let content = [UInt8](repeating: 3, count: 700)
        let tar = Self.archive {
            $0.addPax(("size", "700"))
            var entry = TarBuilder.Entry("a", content: content)
            entry.size = 0
            $0.add(entry)
            $0.add(.init("b"))
        }
        var bench = try Bench()
        let (_, found) = try await bench.unpack(tar, .tar)
        #expect(
            found
                == Unpacked([
                    "a": .file(content, isExecutable: false), "b": .file([], isExecutable: false),
                ])
        )
    }

    static let ambiguous: [Case] = [
        Case(
            "a link with content",
            entry: "l",
            archive: archive {
                $0.addPax(("size", "512"))
                $0.add(.init("l", .link, content: [UInt8](repeating: 0, count: 512), target: "a"))
            }
        ),
        Case(
            "a hard link with content",
            entry: "h",
            archive: archive {
                $0.add(.init("a"))
                $0.add(.init("h", .hardLink, content: [1], target: "a"))
            }
        ),
    ]

    @Test(arguments: ambiguous)
    func contentWhereReadersDifferIsRefused(archive: Case) async throws {
        var bench = try Bench()
        guard case .notAllowed(archive.entry, _)? = try await bench.refusal(archive.archive, .tar)
        else {
            Issue.record("it was not refused")
            return
        }
    }

    static let doubled: [[UInt8]] = [
        archive {
            $0.addPax(("path", "a"))
            $0.addPax(("path", "b"))
            $0.add(.init("c"))
        },
        archive {
            $0.add(.init("././@LongLink", .longName, content: Array("a\u{0}".utf8)))
            $0.add(.init("././@LongLink", .longName, content: Array("b\u{0}".utf8)))
            $0.add(.init("c"))
        },
    ]

    /// Some versions of libarchive also refuse these archives, with other messages.
    @Test(arguments: doubled)
    func twoExtendedHeadersForOneEntryAreRefused(archive: [UInt8]) async throws {
        var bench = try Bench()
        let error = try await bench.refusal(archive, .tar)
        #expect(error == .damaged(entry: nil, "an extended header occurs twice"))
    }

    /// Rounded up to blocks, the largest numbers overflow: the next header would be read from within the
    /// content.
    @Test(arguments: [0x7F, 0x40] as [UInt8])
    func aSizeThatNoFileHasIsRefused(first: UInt8) async throws {
        var tar = TarBuilder(.init("a"), .init("b")).bytes
        // GNU's binary number, in the field of the size.
        let size = [0x80, 0, 0, 0, first] + [UInt8](repeating: 0xFF, count: 7)
        tar.replaceSubrange(124..<136, with: size)
        tar.replaceSubrange(148..<156, with: [UInt8](repeating: UInt8(ascii: " "), count: 8))
        let sum = String(tar[..<512].reduce(0) { $0 + Int($1) }, radix: 8)
        let field = String(repeating: "0", count: 6 - sum.count) + sum + "\0 "
        tar.replaceSubrange(148..<156, with: Array(field.utf8))
        var bench = try Bench()
        let error = try await bench.refusal(tar, .tar)
        #expect(error == .damaged(entry: "a", "the size is not a number"))
    }
}
