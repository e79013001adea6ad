import StageArchive
import StageModel
import StageTesting
import Testing

/// Zip archives with entries that packs must not contain, or with contradicting headers.
@Suite(.directory) struct HostileZipTests {
    @Test(arguments: HostileTarTests.names)
    func namesThatArePathsElsewhereAreRefused(name: String) async throws {
        var bench = try Bench()
        let error = try await bench.refusal(ZipBuilder(.init(name)).bytes, .zip)
        guard case .notAllowed(let entry, _)? = error else {
            Issue.record("found \(String(describing: error))")
            return
        }
        #expect(entry == name)
    }

    static func entry(
        _ name: String = "a",
        mode: UInt32 = 0o100644,
        content: String = "content",
        _ change: (inout ZipBuilder.Entry) -> Void = { _ in }
    ) -> ZipBuilder.Entry {
        var entry = ZipBuilder.Entry(name, content: Array(content.utf8), mode: mode)
        change(&entry)
        return entry
    }

    static let disallowed: [(String, ZipBuilder.Entry)] = [
        ("encrypted", entry { $0.flags |= 1 }),
        ("encrypted strongly", entry { $0.flags |= 1 << 6 }),
        ("encrypted directory", entry { $0.flags |= 1 << 13 }),
        ("an unusual compression", entry { $0.method = 98 }),
        ("fifo", entry(mode: 0o010644, content: "")),
        ("device", entry(mode: 0o020644, content: "")),
        ("set-user-id", entry(mode: 0o104755)),
        ("link to the root", entry(mode: 0o120777, content: "/etc/passwd")),
        ("link outside", entry(mode: 0o120777, content: "../x")),
        ("link with a zero", entry(mode: 0o120777, content: "b\u{0}c")),
        ("link that is compressed", entry(mode: 0o120777) { $0.method = 8 }),
        ("a name with a zero", entry { $0.name = [0x61, 0, 0x62] }),
        ("a name that is not UTF-8", entry { $0.name = [0x61, 0xFF] }),
        ("a link in the local header alone", entry { $0.localMode = 0o120777 }),
        ("a file in both headers, as libarchive states it", entry { $0.localMode = 0o100644 }),
        ("a directory with content", entry(mode: 0o040755)),
        ("a directory with content by its name", entry("a/")),
        ("one by its Unicode name", entry { $0.unicodeName = Array("a/".utf8) }),
    ]

    @Test(arguments: disallowed)
    func disallowedEntriesAreRefused(name: String, entry: ZipBuilder.Entry) async throws {
        var bench = try Bench()
        let error = try await bench.refusal(ZipBuilder(entry).bytes, .zip)
        guard case .notAllowed(let found, _)? = error else {
            Issue.record("found \(String(describing: error))")
            return
        }
        #expect(found == String(decoding: entry.name, as: UTF8.self))
    }

    static let disagreements: [(String, ZipBuilder.Entry)] = [
        ("name", entry { $0.localName = [0x62] }),
        ("longer name", entry { $0.localName = Array("a/b".utf8) }),
        ("size", entry { $0.localSize = 3 }),
        ("compression", entry { $0.localMethod = 8 }),
        ("flags", entry { $0.localFlags = 0 }),
        ("encryption", entry { $0.localFlags = 1 << 11 | 1 }),
        ("checksum of the content", entry { $0.checksum = 1 }),
    ]

    @Test(arguments: disagreements)
    func headersThatDisagreeAreRefused(name: String, entry: ZipBuilder.Entry) async throws {
        var bench = try Bench()
        let error = try await bench.refusal(ZipBuilder(entry).bytes, .zip)
        guard case .damaged("a", _)? = error else {
            Issue.record("found \(String(describing: error))")
            return
        }
    }

    @Test func entriesThatShareBytesAreRefused() async throws {
        var bench = try Bench()
        var twin = Self.entry()
        twin.sharesFirst = true
        let error = try await bench.refusal(ZipBuilder(Self.entry(), twin).bytes, .zip)
        guard case .damaged(nil, let words)? = error else {
            Issue.record("found \(String(describing: error))")
            return
        }
        #expect(words.contains("overlap"))
    }

    @Test func aNameThatIsThereTwiceIsRefused() async throws {
        var bench = try Bench()
        let zip = ZipBuilder(Self.entry(), Self.entry())
        #expect(try await bench.refusal(zip.bytes, .zip) == .collision(entry: "a", .sameName))
    }

    @Test func bytesAroundTheArchiveAreRefused() async throws {
        var bench = try Bench()
        let zip = ZipBuilder(Self.entry()).bytes
        #expect(try await bench.refusal(zip + [0], .zip) != nil)
        #expect(try await bench.refusal([0] + zip, .zip) != nil)
    }

    @Test func aDataDescriptorIsAllowed() async throws {
        var bench = try Bench()
        let entry = Self.entry { $0.hasDescriptor = true }
        let (report, found) = try await bench.unpack(ZipBuilder(entry).bytes, .zip)
        #expect(report.files == 1)
        #expect(found == Unpacked(["a": .file(Array("content".utf8), isExecutable: false)]))
    }

    @Test func aZipCutAnywhereIsNeverASuccess() async throws {
        var bench = try Bench()
        let zip = ZipBuilder(Self.entry(), Self.entry("b/c")).bytes
        for count in 0..<zip.count {
            #expect(try await bench.refusal(Array(zip[..<count]), .zip) != nil, "cut at \(count)")
        }
    }
}
