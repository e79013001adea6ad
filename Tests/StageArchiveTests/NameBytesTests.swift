import StageArchive
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Names and targets keep the bytes of the archive in any normalisation form of Unicode (UAX #15).
@Suite(.directory) struct NameBytesTests {
    private static let composed = "caf\u{E9}"
    private static let decomposed = "cafe\u{301}"

    struct Sample: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var format: ArchiveFormat
        var archive: [UInt8]
        var hasHardLinks: Bool { format != .zip }
    }

    /// The means by which an archive states a name and a target.
    private enum Means: String, CaseIterable {
        case ustar
        case gnu = "GNU"
        case pax
        case binaryPax = "pax with the character set BINARY"
    }

    private enum ZipMeans: String, CaseIterable {
        case flag = "zip with the UTF-8 flag"
        case plain = "zip without the UTF-8 flag"
        case field = "zip with the Unicode path field"
        case both = "zip with the UTF-8 flag and the Unicode path field"
    }

    private static func tar(_ means: Means) -> Sample {
        var builder = TarBuilder()
        func add(_ entry: TarBuilder.Entry) {
            var entry = entry
            let name = String(decoding: entry.name, as: UTF8.self)
            switch means {
            case .ustar:
                break
            case .gnu:
                builder.add(.init("l", .longName, content: entry.name + [0]))
                entry.name = Array("placeholder".utf8)
                guard !entry.target.isEmpty else { break }
                builder.add(.init("l", .longTarget, content: Array(entry.target.utf8) + [0]))
                entry.target = "placeholder"
            case .pax, .binaryPax:
                let target = entry.target
                let set = means == .pax ? "ISO-IR 10646 2000 UTF-8" : "BINARY"
                if target.isEmpty {
                    builder.addPax(("hdrcharset", set), ("path", name))
                } else {
                    builder.addPax(("hdrcharset", set), ("path", name), ("linkpath", target))
                    entry.target = "placeholder"
                }
                entry.name = Array("placeholder".utf8)
            }
            builder.add(entry)
        }
        add(.init(composed, content: [1]))
        add(.init(decomposed, content: [2, 2]))
        add(.init("plain", content: [3]))
        add(.init("hard-\(decomposed)", .hardLink, target: decomposed))
        add(.init("hard-\(composed)", .hardLink, target: composed))
        add(.init("link-\(decomposed)", .link, target: "./\(decomposed)"))
        add(.init("link-\(composed)", .link, target: "./\(composed)"))
        add(.init("d-\(decomposed)/", .directory, mode: 0o755))
        add(.init("d-\(composed)/\(decomposed)", content: [4]))
        builder.finish()
        return Sample(testDescription: means.rawValue, format: .tar, archive: builder.bytes)
    }

    private static func zip(_ means: ZipMeans, isReversed: Bool = false) -> Sample {
        var number = 0
        func entry(
            _ name: String,
            _ content: [UInt8] = [],
            mode: UInt32 = 0o100644
        )
            -> ZipBuilder.Entry
        {
            var entry = ZipBuilder.Entry(name, content: content, mode: mode)
            if means == .plain || means == .field { entry.flags = 0 }
            if means == .field || means == .both { entry.unicodeName = entry.name }
            number += 1
            if means == .field { entry.name = Array("placeholder-\(number)".utf8) }
            return entry
        }
        let builder = ZipBuilder(
            [
                entry(composed, [1]), entry(decomposed, [2, 2]), entry("plain", [3]),
                entry("link-\(decomposed)", Array("./\(decomposed)".utf8), mode: 0o120777),
                entry("link-\(composed)", Array("./\(composed)".utf8), mode: 0o120777),
                // An entry that is a directory only by its mode; libarchive adds a slash to its name.
                entry("d-\(decomposed)", mode: 0o040755),
                entry("d-\(composed)/\(decomposed)", [4]),
            ],
            isReversed: isReversed
        )
        let order = isReversed ? ", directory reversed" : ""
        return Sample(
            testDescription: means.rawValue + order,
            format: .zip,
            archive: builder.bytes
        )
    }

    static let samples: [Sample] =
        Means.allCases.map { tar($0) } + ZipMeans.allCases.map { zip($0) }
        + [zip(.flag, isReversed: true)]

    private static func expected(hasHardLinks: Bool) -> Unpacked {
        var things: [(path: String, thing: Unpacked.Thing)] = [
            (composed, .file([1], isExecutable: false)),
            (decomposed, .file([2, 2], isExecutable: false)),
            ("plain", .file([3], isExecutable: false)),
            ("link-\(decomposed)", .link("./\(decomposed)")),
            ("link-\(composed)", .link("./\(composed)")),
            ("d-\(decomposed)", .directory),
            ("d-\(composed)", .directory),
            ("d-\(composed)/\(decomposed)", .file([4], isExecutable: false)),
        ]
        if hasHardLinks {
            things.append(("hard-\(decomposed)", .file([2, 2], isExecutable: false)))
            things.append(("hard-\(composed)", .file([1], isExecutable: false)))
        }
        return Unpacked(things)
    }

    @Test(arguments: samples)
    func canonicallyEquivalentNamesAreDifferentFiles(sample: Sample) async throws {
        var bench = try Bench()
        let (_, found) = try await bench.unpack(sample.archive, sample.format)
        #expect(found == Self.expected(hasHardLinks: sample.hasHardLinks))
    }

    @Test(arguments: samples)
    func anInventoryTellsCanonicallyEquivalentNamesApart(sample: Sample) throws {
        let root = try TemporaryDirectory.required()
        try root.write(sample.archive, to: "archive", durably: false)
        let inventory = try ArchiveInventory(
            of: root.path.appending("archive"),
            format: sample.format,
            decoding: .process(executable: try Bench.service, arguments: ["unpack-service"])
        )
        // The files have five bytes, and their copies three.
        let expected =
            sample.hasHardLinks
            ? ArchiveInventory(fileCount: 8, directoryCount: 2, installedSize: ByteCount(8))
            : ArchiveInventory(fileCount: 6, directoryCount: 2, installedSize: ByteCount(5))
        #expect(inventory == expected)
    }

    /// Characters that normalization composes, decomposes, reorders or replaces.
    private static let scalars: [Unicode.Scalar] = [
        "a", "e", "\u{E9}", "\u{301}", "\u{323}", "\u{308}", "\u{345}", "\u{338}", "=", "/",
        "\u{1EAD}", "\u{212B}", "\u{2126}", "\u{F900}", "\u{AC00}", "\u{1100}", "\u{1161}",
        "\u{11A8}", "\u{304B}", "\u{3099}", "\u{1D15E}", "\u{2F800}", "\u{1F600}", "\u{FB1D}",
        "\u{915}", "\u{93C}", "\u{958}",
    ]

    @Test(arguments: [1, 2, 3] as [UInt64], [ArchiveFormat.tar, .zip])
    func anyNameKeepsItsBytes(seed: UInt64, format: ArchiveFormat) async throws {
        var state = seed
        func random(_ count: Int) -> Int {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return Int(state >> 33) % count
        }
        var tar = TarBuilder()
        var entries: [ZipBuilder.Entry] = []
        var things: [(path: String, thing: Unpacked.Thing)] = []
        for number in 0..<400 {
            let directory = "\(number)"
            var name = ""
            for _ in 0...random(8) {
                let scalar = Self.scalars[random(Self.scalars.count)]
                name.unicodeScalars.append(scalar == "/" ? "b" : scalar)
            }
            let path = "\(directory)/\(name)"
            things.append((directory, .directory))
            things.append((path, .file([], isExecutable: false)))
            tar.addPax(("path", path))
            tar.add(.init("placeholder"))
            entries.append(.init(path))
        }
        tar.finish()
        var bench = try Bench()
        let archive = format == .tar ? tar.bytes : ZipBuilder(entries).bytes
        let (_, found) = try await bench.unpack(archive, format)
        #expect(found == Unpacked(things))
    }

    @Test func theFirstOfTwoHeadersThatNameAnEntryCounts() async throws {
        var tar = TarBuilder()
        tar.add(.init("l", .longName, content: Array("1-\(Self.composed)\u{0}".utf8)))
        tar.addPax(("path", "1-\(Self.decomposed)"))
        tar.add(.init("placeholder"))
        tar.addPax(("path", "2-\(Self.decomposed)"))
        tar.add(.init("l", .longName, content: Array("2-\(Self.composed)\u{0}".utf8)))
        tar.add(.init("placeholder"))
        tar.finish()
        var bench = try Bench()
        let (_, found) = try await bench.unpack(tar.bytes, .tar)
        let expected: [(path: String, thing: Unpacked.Thing)] = [
            ("1-\(Self.composed)", .file([], isExecutable: false)),
            ("2-\(Self.decomposed)", .file([], isExecutable: false)),
        ]
        #expect(found == Unpacked(expected))
    }

    @Test func aNameThatOccursTwiceIsNamedAsTheArchiveHasIt() async throws {
        var tar = TarBuilder()
        for _ in 0..<2 {
            tar.addPax(("path", Self.decomposed))
            tar.add(.init("placeholder"))
        }
        tar.finish()
        var bench = try Bench()
        guard case .collision(let entry, .sameName)? = try await bench.refusal(tar.bytes, .tar)
        else {
            Issue.record("not refused as a collision")
            return
        }
        #expect(Array(entry.utf8) == Array(Self.decomposed.utf8))
    }
}

/// Names in fields beside the header, which libarchive converts.
@Suite(.directory) struct HostileNameTests {
    /// A pair of surrogates, each encoded as if it were a character (CESU-8).
    private static let surrogates: [UInt8] = [0x61, 0xED, 0xA0, 0xBD, 0xED, 0xB8, 0x80]

    private func tar(_ key: String, _ value: [UInt8], _ entry: TarBuilder.Entry) -> [UInt8] {
        // The value has fewer than 90 bytes, so that the length has two digits.
        let rest = Array(" \(key)=".utf8) + value + [0x0A]
        let record = Array("\(rest.count + 2)".utf8) + rest
        return TarBuilder(.init("pax", .pax, content: record), entry).bytes
    }

    @Test func surrogatesInPaxRecordsAreNotUTF8() async throws {
        var bench = try Bench()
        let name = tar("path", Self.surrogates, .init("a"))
        let text = String(decoding: Self.surrogates, as: UTF8.self)
        #expect(
            try await bench.refusal(name, .tar)
                == .notAllowed(
                    entry: text,
                    ValueError(expected: "a path in UTF-8", text: text)
                )
        )
        for kind in [TarBuilder.Kind.link, .hardLink] {
            let target = tar("linkpath", Self.surrogates, .init("a", kind, target: "b"))
            #expect(
                try await bench.refusal(target, .tar)
                    == .notAllowed(
                        entry: "a",
                        ValueError(expected: "a target in UTF-8", text: text)
                    )
            )
        }
    }

    static let fields: [(String, [UInt8])] = [
        ("not UTF-8", [0x61, 0xFF]),
        ("surrogates", surrogates),
        ("a zero byte", [0x61, 0, 0x62]),
        ("a parent", Array("../x".utf8)),
    ]

    @Test(arguments: fields)
    func aUnicodePathFieldThatIsNoPathIsRefused(label: String, bytes: [UInt8]) async throws {
        var entry = ZipBuilder.Entry("a")
        entry.flags = 0
        entry.unicodeName = bytes
        var bench = try Bench()
        guard
            case .notAllowed(let name, _)? = try await bench.refusal(ZipBuilder(entry).bytes, .zip)
        else {
            Issue.record("not refused")
            return
        }
        #expect(name == String(decoding: bytes, as: UTF8.self))
    }

    @Test func aUnicodePathFieldThatImplementationsReadDifferentlyIsRefused() async throws {
        var bench = try Bench()
        // libarchive compares the field's checksum with the composed name, and ignores the field.
        var other = ZipBuilder.Entry("cafe\u{301}")
        other.unicodeName = Array("other".utf8)
        // libarchive reads fields of any version.
        var unknown = ZipBuilder.Entry("a")
        unknown.unicodeName = Array("caf\u{E9}".utf8)
        unknown.unicodeVersion = 2
        for (entry, name) in [(other, "other"), (unknown, "a")] {
            #expect(
                try await bench.refusal(ZipBuilder(entry).bytes, .zip)
                    == .damaged(entry: name, "its headers are ambiguous")
            )
        }
    }
}
