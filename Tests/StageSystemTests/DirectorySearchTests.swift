import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Searching for a file in each subdirectory of a directory.
@Suite(.directory) struct DirectorySearchTests {
    private let root: Directory

    init() throws { root = try TemporaryDirectory.required() }

    private func write(_ size: Int, to name: FilePath.Component, in directory: Directory) throws {
        try directory.write([UInt8](repeating: 0x78, count: size), to: name, durably: false)
    }

    @Test func filesOfAllDirectoriesAreLookedAt() throws {
        let above = try root.makeDirectory("above")
        for (index, name) in ["a", "b", "c"].enumerated() {
            let directory = try above.makeDirectory(FilePath(name))
            try write(index + 1, to: "file", in: directory)
            try write(100, to: "other", in: directory)
        }
        _ = try above.makeDirectory("empty")
        try write(50, to: "plain", in: above)
        var sizes: Set<Int64> = []
        let isFound = try root.contains(file: "file", inDirectoriesOf: "above") { status in
            sizes.insert(status.size)
            return false
        }
        #expect(!isFound)
        #expect(sizes == [1, 2, 3])
        for size in 1...4 as ClosedRange<Int64> {
            let isFound = try root.contains(file: "file", inDirectoriesOf: "above") {
                $0.size == size
            }
            #expect(isFound == (size < 4))
        }
    }

    @Test func linksAndMissingFilesAreSkipped() throws {
        let above = try root.makeDirectory("above")
        let directory = try above.makeDirectory("a")
        try directory.createLink("file", to: "../target")
        try write(1, to: "target", in: above)
        let outside = try root.makeDirectory("outside")
        try write(1, to: "file", in: outside)
        try above.createLink("link", to: "../outside")
        try root.createLink("linked", to: "above")
        for path in ["above", "linked", "missing", "above/target"] {
            #expect(try !root.contains(file: "file", inDirectoriesOf: path) { _ in true })
        }
    }
}
