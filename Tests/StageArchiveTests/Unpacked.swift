import Logging
import StageArchive
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The result of unpacking: files with their content, directories and links.
struct Unpacked: Equatable {
    enum Thing: Equatable {
        case file([UInt8], isExecutable: Bool)
        case directory
        case link(String)

        /// Compares targets by their bytes: canonically equivalent ones lead to different files.
        static func == (left: Thing, right: Thing) -> Bool {
            switch (left, right) {
            case (.file(let one, let isExecutable), .file(let other, let isOtherExecutable)):
                one == other && isExecutable == isOtherExecutable
            case (.directory, .directory): true
            case (.link(let one), .link(let other)): one.utf8.elementsEqual(other.utf8)
            default: false
            }
        }
    }

    /// The entries by the bytes of their paths: canonically equivalent paths are different files.
    var things: [[UInt8]: Thing] = [:]

    /// Reads a tree from disk.
    init(_ directory: Directory) throws {
        try read(directory, prefix: "")
    }

    init(_ things: [String: Thing]) {
        self.init(things.map { (path: $0.key, thing: $0.value) })
    }

    init(_ things: [(path: String, thing: Thing)]) {
        for (path, thing) in things { self.things[Array(path.utf8)] = thing }
    }

    private mutating func read(_ directory: Directory, prefix: String) throws {
        for entry in try directory.entries() {
            let path = prefix + entry.path.string
            let key = Array(path.utf8)
            let name = entry.path
            switch entry.kind {
            case .file:
                let status = try #require(try directory.status(name))
                #expect([0o644, 0o755].contains(status.mode), "mode of '\(path)'")
                let content = try directory.file(reading: name)?.readAll(limit: 1 << 26)
                things[key] = .file(try #require(content), isExecutable: status.isExecutable)
            case .directory:
                things[key] = .directory
                try read(try #require(try directory.directory(name)), prefix: path + "/")
            case .link:
                things[key] = .link(try #require(try directory.link(entry.name)))
            case .other:
                Issue.record("'\(path)' is no file, directory or link")
            }
        }
    }
}

/// An unpacker with a new destination for each archive, and files beside the destinations that must not change.
struct Bench {
    let root: Directory
    let unpacker: Unpacker
    var limits = UnpackLimits(entries: 1000, bytes: .mebibytes(16))
    private var rounds = 0

    /// The executable that serves unpack requests, built beside the tests.
    static var service: FilePath {
        get throws {
            let tests = try #require(FilePath("/proc/self/exe").resolved)
            return tests.removingLastComponent().appending("unpack-service")
        }
    }

    /// Creates a bench; without a mode, archives are decoded like in the command.
    init(_ mode: Unpacker.Mode? = nil) throws {
        root = try TemporaryDirectory.required()
        let service = Unpacker.Mode.process(
            executable: try Self.service,
            arguments: ["unpack-service"]
        )
        unpacker = Unpacker(mode ?? service, logger: Logger(label: "test"))
        let canary = try root.file(creating: "canary")
        try canary.write([1, 2, 3].span, at: 0)
    }

    /// Unpacks an archive into a new directory.
    mutating func unpack(
        _ bytes: [UInt8],
        _ format: ArchiveFormat,
        fileName: String? = nil
    ) async throws -> (UnpackReport, Unpacked) {
        rounds += 1
        let archive = try root.file(creating: FilePath("archive-\(rounds)"))
        try archive.write(bytes.span, at: 0)
        let outside = try root.makeDirectory(FilePath("outside-\(rounds)"))
        let destination = try outside.makeDirectory("destination")
        let request = UnpackRequest(
            archive: archive.descriptor,
            destination: destination,
            format: format,
            fileName: fileName,
            limits: limits
        )
        let result: Result<UnpackReport, ArchiveError>
        do {
            result = .success(try await unpacker.unpack(request))
        } catch {
            result = .failure(error)
        }
        #expect(try outside.entries().count == 1)
        try checkCanary()
        let found = (try? result.get()) == nil ? Unpacked([:]) : try Unpacked(destination)
        try root.remove(try #require(FilePath.Component("archive-\(rounds)")))
        try root.removeTree(try #require(FilePath.Component("outside-\(rounds)")))
        return (try result.get(), found)
    }

    /// Returns the error for an invalid archive.
    mutating func refusal(_ bytes: [UInt8], _ format: ArchiveFormat) async throws -> ArchiveError? {
        do {
            _ = try await unpack(bytes, format)
            return nil
        } catch let error as ArchiveError {
            return error
        }
    }

    private func checkCanary() throws {
        let canary = try root.file(reading: "canary")?.readAll(limit: 9)
        #expect(canary == [1, 2, 3])
        #expect(try root.entries().count == 3)
    }
}

extension FilePath {
    /// The target of a symbolic link in `/proc`.
    fileprivate var resolved: FilePath? {
        let parent = removingLastComponent()
        guard let name = lastComponent, let directory = try? Directory.open(parent) else {
            return nil
        }
        return (try? directory.link(name)).flatMap { $0 }.map { FilePath($0) }
    }
}
