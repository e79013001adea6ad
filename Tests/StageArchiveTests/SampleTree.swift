import StageModel
import StageTesting

/// A tree with every kind of entry that a pack may contain, as archives and as the expected result.
enum SampleTree {
    static let large = (0..<700_000).map { UInt8(truncatingIfNeeded: $0 &* 2_654_435_761 >> 13) }
    static let longName = String(repeating: "verzeichnis-", count: 8) + "/" + longLeaf
    static let longLeaf = String(repeating: "ä", count: 100) + ".png"

    static let things: [String: Unpacked.Thing] = [
        "a": .directory,
        "a/small": .file(Array("small".utf8), isExecutable: false),
        "a/empty": .file([], isExecutable: false),
        "a/tool": .file(Array("#!/bin/sh\n".utf8), isExecutable: true),
        "a/copy": .file(Array("#!/bin/sh\n".utf8), isExecutable: true),
        "empty": .directory,
        "Übergröße": .directory,
        "Übergröße/日本語.txt": .file(Array("日本".utf8), isExecutable: false),
        "large": .file(large, isExecutable: false),
        "link": .link("a/../Übergröße/日本語.txt"),
        "dangling": .link("a/nowhere"),
        "a/up": .link(".."),
        String(repeating: "verzeichnis-", count: 8): .directory,
        longName: .file([1], isExecutable: false),
    ]

    static let files = 7
    static let directories = 4
    static let links = 3

    /// The tree as a tar archive, without compression.
    static let tar: [UInt8] = {
        var builder = TarBuilder()
        builder.add(.init("./", .directory, mode: 0o700))
        builder.add(.init("./a/", .directory, mode: 0o775))
        builder.add(.init("a/small", content: Array("small".utf8), mode: 0o600))
        builder.add(.init("a/empty"))
        builder.add(.init("a/tool", content: Array("#!/bin/sh\n".utf8), mode: 0o744))
        builder.add(.init("a/copy", .hardLink, mode: 0o744, target: "./a/tool"))
        builder.add(.init("a/up", .link, target: ".."))
        builder.add(.init("empty/", .directory))
        builder.add(.init("link", .link, target: "a/../Übergröße/日本語.txt"))
        builder.add(.init("Übergröße/日本語.txt", content: Array("日本".utf8)))
        builder.add(.init("large", content: large))
        builder.add(.init("dangling", .link, target: "a/nowhere"))
        builder.addPax(("path", longName), ("comment", "für später"))
        builder.add(.init("short", content: [1]))
        builder.finish()
        return builder.bytes
    }()

    /// A few small entries, for tests that go through every byte.
    static let tiny: [UInt8] = {
        var builder = TarBuilder()
        builder.add(.init("a", content: [UInt8](repeating: 0, count: 1024)))
        builder.addPax(("path", "ü"))
        builder.add(.init("b", content: Array("content".utf8)))
        builder.add(.init("l", .link, target: "a"))
        builder.finish()
        return builder.bytes
    }()
}

extension ArchiveFormat {
    /// The formats that are tar archives.
    static let tars: [ArchiveFormat] = [
        .tar, .tarGzip, .tarXZ, .tarZstandard, .tarBzip2, .tarLZ4,
    ]
}
