import FoundationEssentials
import Glibc
import StageModel
import StageTrust

/// A client for `tuf-conformance`, the public conformance suite of The Update Framework.
///
/// The suite starts it with the arguments of its CLIENT-CLI.md. The client exits with status 0 if the
/// command succeeded, else with 1.
@main
struct ConformanceClient {
    let arguments: ClientArguments
    let storage: MetadataDirectory
    /// Returns the bytes at a URL, at most as many as given, or `nil` if the server has no such file.
    let download: (_ url: String, _ limit: Int) throws -> [UInt8]?

    static func main() {
        do {
            let arguments = try ClientArguments(commandLine())
            let client = ConformanceClient(
                arguments: arguments,
                storage: MetadataDirectory(path: arguments.metadataDirectory),
                download: LoopbackHTTP.get
            )
            try client.run()
        } catch {
            FileHandleText.standardError("tuf-conformance-client: error: \(error)\n")
            exit(1)
        }
    }

    /// The arguments without the program's name.
    ///
    /// The suite sets the clock with 'faketime', which changes the environment before 'main'; the Swift
    /// runtime finds arguments by their place before the environment and then finds none.
    private static func commandLine() throws -> [String] {
        guard let bytes = FileManager.default.contents(atPath: "/proc/self/cmdline") else {
            throw ClientError("the arguments cannot be read")
        }
        return bytes.split(separator: 0, omittingEmptySubsequences: false)
            .dropFirst().dropLast().map { String(decoding: $0, as: UTF8.self) }
    }

    private func run() throws {
        switch arguments.command {
        case .initialize(let root):
            let bytes = try storage.bytes(atPath: root)
            try storage.store(bytes, as: RoleName.root.fileName)
        case .refresh(let url):
            _ = try refresh(from: url)
        case .download(let url, let targets):
            let metadata = try refresh(from: url)
            for name in targets.names {
                try download(name, of: targets, metadata: metadata, from: url)
            }
        }
    }

    private func refresh(from url: String) throws -> TrustedMetadata {
        let stored = StoredMetadata(
            root: try storage.bytes(of: RoleName.root.fileName),
            timestamp: try? storage.bytes(of: RoleName.timestamp.fileName),
            snapshot: try? storage.bytes(of: RoleName.snapshot.fileName),
            targets: try? storage.bytes(of: RoleName.targets.fileName)
        )
        let now = MetadataTime(secondsSince1970: Int64(Date.now.timeIntervalSince1970))
        var refresh = try MetadataRefresh(from: stored, at: now)
        while true {
            switch try refresh.next() {
            case .fetch(let file):
                if let bytes = try download(url + file.path, Int(file.maximumLength.rawValue)) {
                    refresh.accept(bytes)
                } else {
                    refresh.notFound()
                }
            case .store(let role, let bytes): try storage.store(bytes, as: role.fileName)
            case .remove(let role): try storage.remove(role.fileName)
            case .done(let metadata): return metadata
            }
        }
    }

    private func download(
        _ name: String,
        of targets: ClientArguments.Targets,
        metadata: TrustedMetadata,
        from url: String
    ) throws {
        let target = try search(for: TargetPath(name), in: metadata, from: url)
        let directory = MetadataDirectory(path: targets.directory)
        let file = name.utf8.map { byte in
            let digits = String(byte, radix: 16)
            return digits.count == 1 ? "0" + digits : digits
        }.joined()
        if let held = try? directory.bytes(of: file), (try? target.check(held)) != nil { return }
        guard
            let bytes = try download(targets.url + target.location, Int(target.length.rawValue))
        else { throw ClientError("the server has no '\(target.location)'") }
        try target.check(bytes)
        try directory.store(bytes, as: file)
    }

    private func search(
        for path: TargetPath,
        in metadata: TrustedMetadata,
        from url: String
    ) throws -> Target {
        var search = TargetSearch(for: path, in: metadata)
        while true {
            switch try search.next() {
            case .load(let role):
                if let bytes = try? storage.bytes(of: role.fileName) {
                    search.accept(bytes)
                } else {
                    search.notFound()
                }
            case .fetch(let file):
                if let bytes = try download(url + file.path, Int(file.maximumLength.rawValue)) {
                    search.accept(bytes)
                } else {
                    search.notFound()
                }
            case .store(let role, let bytes): try storage.store(bytes, as: role.fileName)
            case .found(let target): return target
            case .absent: throw ClientError("no role names the target '\(path)'")
            }
        }
    }
}

/// A failure of the program itself, as text.
struct ClientError: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}
