import StageSystem
import StageTesting
import SystemPackage
import Testing

@Suite(.directory)
struct LockFileTests {
    private let directory: Directory
    private static let name: FilePath.Component = ".file.lock"

    init() throws { directory = try TemporaryDirectory.required() }

    /// Returns whether the lock could be taken; releases it at once.
    private func canBeHad(_ mode: FileLock.Mode = .exclusive) throws -> Bool {
        let lock = try LockFile.attempt(Self.name, in: directory, mode: mode)
        return lock != nil
    }

    private var mode: UInt32? {
        get throws { try directory.status(FilePath(Self.name))?.mode }
    }

    @Test func onlyOneHolderHasTheLockAndTheLastRemovesTheFile() throws {
        let lock = try LockFile.attempt(Self.name, in: directory, mode: .exclusive)
        #expect(try !canBeHad())
        #expect(try mode == 0o600)
        _ = consume lock
        #expect(try directory.entries() == [])
        #expect(try canBeHad())
    }

    @Test func severalHoldersShareTheLock() throws {
        let first = try LockFile.attempt(Self.name, in: directory, mode: .shared)
        #expect(try canBeHad(.shared))
        #expect(try !canBeHad())
        #expect(try mode == 0o600, "one has it still")
        _ = consume first
        #expect(try directory.entries() == [])
    }

    /// A process that was forked meanwhile keeps the lock's file open until it executes its program.
    @Test func aLockEndsEvenIfAnotherProcessHasItsFileOpen() throws {
        let file = try directory.file(updating: "file", permissions: .privateFile)
        let copy = try FileDescriptor(rawValue: file.descriptor.rawValue).duplicate()
        let lock = try FileLock.attempt(file, mode: .exclusive)
        _ = consume lock
        let other = try directory.file(updating: "file", permissions: .privateFile)
        #expect(try !FileLock.isHeld(on: other))
        try copy.close()
    }

    @Test func theLockFileOfAKilledProcessIsReused() throws {
        try directory.write([], to: Self.name, durably: false)
        #expect(try canBeHad())
        #expect(try directory.entries() == [])
    }

    @Test(arguments: [
        (0o755, 0o600), (0o700, 0o600), (0o775, 0o660), (0o777, 0o666), (0o1777, 0o600),
    ])
    func usersWhoMayReplaceFilesMayOpenTheLock(folder: CInterop.Mode, file: UInt32) throws {
        let shared = try directory.makeDirectory("shared")
        try shared.setMode(FilePermissions(rawValue: folder))
        let lock = try LockFile.attempt(Self.name, in: shared, mode: .exclusive)
        #expect(try shared.status(FilePath(Self.name))?.mode == file)
        _ = consume lock
    }

    /// Users who may change names in a directory must be able to take locks that root created there.
    @Test(.root("giving a directory away takes root"))
    func inADirectoryOfAUserRootMakesTheUsersFile() throws {
        let folder = try directory.makeDirectory("own")
        let user = UserIdentity(user: 1, group: 2, groups: [])
        try directory.changeOwner(of: "own", to: user)
        let lock = try LockFile.attempt(Self.name, in: folder, mode: .exclusive)
        let status = try #require(try folder.status(FilePath(Self.name)))
        #expect(status.owner == 1 && status.group == 2 && status.mode == 0o600)
        _ = consume lock
    }

    @Test func anotherFileTypeIsNamedInTheError() async throws {
        _ = try directory.makeDirectory(FilePath(Self.name))
        let error = #expect(throws: FileError.self) { try canBeHad() }
        #expect(error?.isNotRegularFile == true)
    }

    @Test func aTimeoutNamesTheLock() async throws {
        let lock = try LockFile.attempt(Self.name, in: directory, mode: .shared)
        let directory = directory
        let error = await #expect(throws: FileError.self) {
            let timeout = Duration.milliseconds(30)
            _ = try await LockFile.wait(
                for: Self.name,
                in: directory,
                mode: .exclusive,
                timeout: timeout
            )
        }
        #expect(error?.isHeldByOthers == true)
        #expect(
            error?.description
                == "another process holds the lock '\(directory.path.appending(Self.name))'"
        )
        _ = consume lock
    }

    /// A process that takes a lock repeatedly would prevent another one, which only tries from time to time, from ever taking it.
    @Test(.timeLimit(.minutes(5)), arguments: [FileLock.Mode.shared, .exclusive])
    func aRequestWaitsInTheKernelUntilTheLockIsFree(mode: FileLock.Mode) async throws {
        let held = try LockFile.attempt(Self.name, in: directory, mode: .exclusive)
        let status = try #require(try directory.status(FilePath(Self.name)))
        let directory = directory
        let request = Task {
            _ = try await LockFile.wait(
                for: Self.name,
                in: directory,
                mode: mode,
                timeout: .seconds(200)
            )
        }
        try await poll("it does not wait in the kernel") { try status.hasWaitingLockRequest() }
        _ = consume held
        try await request.value
        #expect(try directory.entries() == [])
    }

    /// Otherwise, each request that has ended would occupy a thread while another process has the lock.
    @Test func requestsOfAProcessForAFileWaitInOneQueue() throws {
        let queue = try LockQueue.shared(for: try directory.file(updating: "a"))
        let same = try LockQueue.shared(for: try directory.file(updating: "a"))
        let other = try LockQueue.shared(for: try directory.file(updating: "b"))
        #expect(same === queue)
        #expect(other !== queue)
    }

    /// Each increments a number under the lock: no increment is lost.
    @Test func aWaitingProcessFindsTheNewFile() async throws {
        try directory.write([1], to: "file", durably: false)
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
                    guard let lock = try LockFile.attempt(name, in: directory, mode: .exclusive)
                    else {
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
