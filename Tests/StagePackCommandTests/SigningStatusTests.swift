import Glibc
import StageDigest
import StageSigning
import StageSystem
import StageTesting
import StageTrust
import SystemPackage
import Testing

/// Exit statuses of the signing commands if signatures are missing or metadata has expired.
@Suite(.directory)
struct SigningStatusTests {
    private let keys: Directory
    private let site: Directory

    init() throws {
        keys = try TemporaryDirectory.required()
        site = try keys.makeDirectory("site")
    }

    private var manifest: String { site.path.appending("manifest.json").string }

    private func file(_ key: String) -> FilePath { keys.path.appending("\(key).pem") }

    /// Runs a command on the manifest with keys.
    private func run(_ command: String, _ names: String...) async throws -> Program.Ending {
        let options = names.flatMap { ["--key", file($0).string] }
        return try await Program().run(
            command.split(separator: " ").map(String.init) + [manifest] + options
        )
    }

    private func write(_ text: String) throws {
        try site.write(Array(text.utf8), to: "manifest.json", durably: false)
    }

    /// Signs the first metadata, as a publisher did days ago; `names` are the keys of targets and root.
    private func publish(_ names: String..., threshold: Int = 1, daysAgo: Int64) async throws {
        let created = try await Program().run([
            "manifest", "create", "--application", "net.example", "-o", manifest,
        ])
        #expect(created.status == 0, "\(created)")
        let signers = try names.map {
            try KeyFile.generate(.ed25519, at: file($0), passphrase: nil)
        }
        let online = try KeyFile.generate(.ed25519, at: file("online"), passphrase: nil)
        let offline = signers.map(\.key)
        let content = RootContent(roles: [
            .root: .init(keys: offline, threshold: threshold),
            .targets: .init(keys: offline, threshold: threshold),
            .snapshot: .init(keys: [online.key]), .timestamp: .init(keys: [online.key]),
        ])
        let run = SigningRun(
            RepositoryFiles(directory: site, manifestName: "manifest.json"),
            manifest: Array(try text(of: FilePath(manifest)).utf8),
            signers: signers + [online],
            at: MetadataTime(secondsSince1970: Int64(time(nil)) - daysAgo * 86400)
        )
        #expect(try !run.initialize(content).roles.isEmpty)
    }

    private var timestamp: String {
        get throws { try text(of: site.path.appending("metadata/timestamp.json")) }
    }

    /// An additional signature is a success, even if it is not the last one; a key with nothing to sign is a failure.
    @Test func tooFewSignaturesAreADraft() async throws {
        try await publish("a", "b", threshold: 2, daysAgo: 0)
        let before = try timestamp
        try write(try text(of: FilePath(manifest)) + "\n")
        let refused = try await run("sign", "online")
        #expect(refused.status == 31, "\(refused)")
        #expect(refused.error.contains("none of the given keys signs for 'targets'"), "\(refused)")
        for _ in 1...2 {
            let half = try await run("sign", "a")
            #expect(half.status == 0, "\(half)")
            #expect(half.error.contains("stagepack sign"), "\(half)")
            #expect(try timestamp == before)
            #expect(try await run("manifest lint").status == 3)
        }
        let stillRefused = try await run("sign", "online")
        #expect(stillRefused.status == 31, "\(stillRefused)")
        _ = try KeyFile.generate(.ed25519, at: file("stranger"), passphrase: nil)
        let stranger = try await run("sign", "stranger")
        #expect(stranger.status == 31, "\(stranger)")
        #expect(stranger.error.contains("none of the given keys signs for any role"))
        #expect(try timestamp == before)
        #expect(try await run("sign", "b", "online").status == 0)
        #expect(try await run("manifest lint").status == 0)
    }

    /// A command fails if metadata stays expired, and names the role.
    @Test(arguments: ["sign", "refresh"])
    func expiredMetadataIsAFailureUntilItIsRenewed(command: String) async throws {
        try await publish("a", daysAgo: 250)
        #expect(try await run("manifest lint").status == 3)
        let online = try await run(command, "online")
        #expect(online.status == 31, "\(online)")
        #expect(online.error.contains("the targets metadata has expired, at "), "\(online)")
        #expect(online.error.contains("hint: with the keys of the role: stagepack"), "\(online)")
        let renewed = try await run(command, "a", "online")
        #expect(renewed.status == 0, "\(renewed)")
        #expect(try await run("manifest lint").status == 0)
    }
}
