import StageSystem
import StageTesting
import SystemPackage
import Testing

@Suite(.directory)
struct FileLockTests {
    private let directory: Directory

    init() throws {
        directory = try TemporaryDirectory.required()
        try directory.write([1], to: "file", durably: false)
    }

    /// Whether the right to replace the file could be had; it is given up at once.
    private func canBeHad() throws -> Bool {
        let lock = try FileLock.attempt(replacing: "file", in: directory)
        return lock != nil
    }

    @Test func onlyOneMayReplaceAFileAtATime() throws {
        let lock = try FileLock.attempt(replacing: "file", in: directory)
        #expect(try !canBeHad())
        _ = consume lock
        #expect(try canBeHad())
        #expect(try directory.entries().map(\.name.string) == ["file"])
    }

    @Test func theRightIsOverWithTheReplacement() throws {
        let lock = try FileLock.attempt(replacing: "file", in: directory)
        try directory.write([2], to: "file", durably: false)
        #expect(try canBeHad())
        _ = consume lock
    }

    @Test func whatIsNotThereCannotBeReplaced() throws {
        let error = #expect(throws: FileError.self) {
            _ = try FileLock.attempt(replacing: "other", in: directory)
        }
        #expect(error?.errno == .noSuchFileOrDirectory)
    }

    /// Each takes the number there is and puts the next one in its place: none is lost.
    @Test func whoeverWaitsFindsTheNewFile() async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<4 {
                group.addTask { try await Self.increment(in: directory, times: 200) }
            }
            try await group.waitForAll()
        }
        let bytes = try directory.file(reading: "file")?.readAll(limit: 8)
        #expect(bytes == [33, 3])
    }

    private static func increment(in directory: Directory, times: Int) async throws {
        for _ in 0..<times {
            try await withBlockingThread {
                while true {
                    guard let lock = try FileLock.attempt(replacing: "file", in: directory) else {
                        continue
                    }
                    let bytes = try directory.file(reading: "file")?.readAll(limit: 8) ?? []
                    let number = bytes.reversed().reduce(0) { $0 << 8 + Int($1) } + 1
                    let next = [UInt8(number & 0xFF), UInt8(number >> 8)]
                    try directory.write(next, to: "file", durably: false)
                    _ = consume lock
                    return
                }
            }
        }
    }
}
