import Logging
import StageExtension
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// A group's folders in the test's directory, a request about two packs, and hosts for programs.
struct Bench {
    let root: Directory
    let container: FilePath
    let scratch: FilePath
    var request: ExtensionRequest

    init(_ kind: ContentRequest = .install, scratch path: FilePath = "scratch") throws {
        root = try TemporaryDirectory.required()
        container = root.path.appending("shared")
        scratch = root.path.pushing(path)
        _ = try root.makeDirectory("shared")
        let manifest = Manifest(
            application: Self.application,
            revision: 1,
            packs: [
                Self.pack("dawn", .essential([.firstInstallation]), #"{"quality":"hd"}"#),
                Self.pack("dusk", .onDemand, nil),
                Self.pack("noon", .essential([.firstInstallation]), #"{"firstScreen":false}"#),
                Self.pack("rain", .prefetch([.firstInstallation]), #"{"quality":"uhd"}"#),
            ]
        )
        let file = try root.file(creating: "manifest.json")
        try file.write(manifest.json().span, at: 0)
        request = ExtensionRequest(
            kind,
            application: Self.application,
            applicationVersion: "2.4.1",
            applicationGroup: Self.group,
            manifest: file.path,
            container: container,
            scratch: scratch
        )
        request.packs = manifest.packs.map { pack in
            ExtensionPack(
                pack,
                urls: pack.urls + ["https://mirror.example.org/\(pack.id)"],
                stagedVersion: nil,
                isProposed: pack.policy != .onDemand
            )
        }
    }

    static let application = ApplicationID(unchecked: "com.example.aurora")
    static let group = ApplicationGroupID(unchecked: "com.example.aurora")

    private static func pack(_ id: String, _ policy: DownloadPolicy, _ userInfo: String?) -> Pack {
        var pack = Pack(
            id: PackID(unchecked: id),
            version: 3,
            policy: policy,
            archive: PackArchive(
                url: "https://cdn.example.com/\(id)",
                format: .tar,
                size: ByteCount(1024),
                digest: Digest(bytes: [UInt8](repeating: 7, count: 32))
            ),
            installedSize: ByteCount(2048),
            fileCount: 1
        )
        pack.userInfo = userInfo
        return pack
    }

    /// The usual limits, but with time for a program on a busy machine.
    static let patient = ExtensionLimits(timeLimit: .seconds(300))

    /// A host of the shell, which runs `text`.
    static func shell(
        _ text: String,
        limits: ExtensionLimits = Bench.patient
    ) -> ExtensionHost {
        host("/bin/sh", ["-c", text], limits: limits)
    }

    /// A host of Python, which runs `text`.
    static func python(_ text: String) -> ExtensionHost { host("/usr/bin/python3", ["-c", text]) }

    static func host(
        _ path: String,
        _ arguments: [String] = [],
        limits: ExtensionLimits = Bench.patient
    ) -> ExtensionHost {
        ExtensionHost(
            program: Registration.Program(path: path, arguments: arguments),
            limits: limits,
            logger: Logger(label: "test")
        )
    }

    /// Result of a request to a program that gives a certain answer.
    func outcome(_ host: ExtensionHost) async -> Result<[ExtensionDownload], ExtensionError> {
        do throws(ExtensionError) {
            return .success(try await host.downloads(for: request))
        } catch {
            return .failure(error)
        }
    }

    /// Names in the test's directory after a program ran that left no files.
    func expectNothingLeft(_ location: SourceLocation = #_sourceLocation) throws {
        let names = try root.entries().map(\.path.string).sorted()
        #expect(names == ["manifest.json", "shared"], sourceLocation: location)
        let shared = try Directory.open(container).entries().map(\.path.string)
        #expect(shared.isEmpty, sourceLocation: location)
    }

    /// Returns whether a process with `mark` among its arguments exists.
    static func hasProcess(_ mark: String) throws -> Bool {
        for process in try Directory.open("/proc").entries() where Int(process.path.string) != nil {
            let path = FilePath("/proc").appending(process.name).appending("cmdline")
            // A process that has gone meanwhile has no arguments.
            guard let file = try? File.open(reading: path) else { continue }
            var bytes = [UInt8](repeating: 0, count: 4096)
            guard let count = try? file.read(into: &bytes, at: 0) else { continue }
            if String(decoding: bytes[..<count], as: UTF8.self).contains(mark) { return true }
        }
        return false
    }
}

/// Returns the download of a pack, as an extension names it.
func pack(_ id: String, essential: Bool? = nil) -> ExtensionDownload {
    .pack(PackID(unchecked: id), essential: essential, priority: nil)
}
