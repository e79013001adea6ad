import Foundation
import Glibc
import StageDigest
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Signing with the built program, in the steps of a publisher.
@Suite(.directory)
struct SigningTests: PublisherSuite {
    /// The directory that is published.
    let directory: Directory
    /// The directory of the keys, which is the parent of ``directory``.
    private let keys: Directory
    let program: Program

    init() throws {
        keys = try TemporaryDirectory.required()
        directory = try keys.makeDirectory("site")
        // The passphrase is on descriptor 9, if there is a file with it.
        program = Program(wrapper: [
            "/bin/sh", "-c",
            #"cd "$0" && if [ -e passphrase ]; then exec 9< passphrase; fi && exec "$@""#,
            directory.path.string, try Program.path.string,
        ])
    }

    private struct State: Decodable {
        struct Role: Decodable {
            var role: String
            var version: Int
            var isNew: Bool
        }
        struct Draft: Decodable {
            var role: String
            var needed: Int
        }
        var isChanged, isPublished: Bool
        var roles: [Role]
        var drafts: [Draft]
    }

    @discardableResult
    private func succeed(
        _ arguments: String,
        at location: SourceLocation = #_sourceLocation
    ) async throws -> String {
        let ending = try await run(arguments)
        #expect(ending.status == 0, "\(ending.error)", sourceLocation: location)
        return ending.output
    }

    private func state(_ arguments: String) async throws -> State {
        let output = try await succeed(arguments + " --json")
        return try JSONDecoder().decode(State.self, from: Data(output.utf8))
    }

    private func createManifest() async throws {
        try await succeed("manifest create --application net.example -o manifest.json")
    }

    @Test func aPublisherWithOneKeyNeedsTwoCommands() async throws {
        try await createManifest()
        try write("passphrase", "correct horse\n")
        let refused = try await run("sign manifest.json --key ../k.pem --passphrase-fd 9")
        #expect(refused.status == 64)
        let begun = try await state("keys init manifest.json --key ../k.pem --passphrase-fd 9")
        #expect(begun.roles.map(\.role) == ["root", "targets", "snapshot", "timestamp"])
        let key = try #require(try keys.status("k.pem"))
        #expect(key.mode == 0o600)
        let pem = try text(of: keys.path.appending("k.pem"))
        #expect(pem.hasPrefix("-----BEGIN ENCRYPTED PRIVATE KEY-----"))
        try await succeed("manifest lint manifest.json")

        let manifest = try text(of: directory.path.appending("manifest.json"))
        try write("manifest.json", manifest + "\n")
        let lint = try await run("manifest lint manifest.json")
        #expect(lint.status == 3)
        #expect(lint.output.contains("hint: stagepack sign manifest.json --key KEYFILE"))
        let signed = try await state("sign manifest.json --key ../k.pem --passphrase-fd 9")
        #expect(signed.roles.map(\.version) == [1, 2, 2, 2])
        try await succeed("manifest lint manifest.json")
        let copy = "\(Digest(of: Array((manifest + "\n").utf8))).manifest.json"
        #expect(try text(of: directory.path.appending(copy)) == manifest + "\n")
        let idle = try await state("refresh manifest.json --key ../k.pem --passphrase-fd 9")
        #expect(!idle.isChanged)
        let forced = try await state(
            "refresh manifest.json --key ../k.pem --passphrase-fd 9 --force"
        )
        #expect(forced.roles.map(\.version) == [1, 2, 3, 3])
    }

    @Test func aRefreshDoesNotReadTheManifestAgain() async throws {
        try await createManifest()
        try await succeed("keys init manifest.json --key ../k.pem --unencrypted")
        try write("manifest.json", "{")
        let forced = try await state("refresh manifest.json --key ../k.pem --force")
        #expect(forced.roles.map(\.version) == [1, 1, 2, 2])
        #expect(try await run("sign manifest.json --key ../k.pem").status == 11)
    }

    /// With or without an installed provider of tokens, no file is used as a key in a token, or created.
    @Test func aKeyInATokenIsNoFile() async throws {
        try await createManifest()
        for arguments in [
            "keys init manifest.json --key pkcs11:token=none;object=none",
            "keys init manifest.json --unencrypted --key ../k.pem --role timestamp=pkcs11:object=none",
            "keys show pkcs11:token=none", "sign manifest.json --key pkcs11:token=none",
        ] {
            let ending = try await run(arguments + " --passphrase-fd 9")
            #expect(ending.status == 31, "\(ending)")
            #expect(ending.error.contains("pkcs11:"), "\(ending.error)")
            #expect(ending.error.contains("\nhint: "), "\(ending.error)")
        }
        let refused = try await run("keys show pkcs11:object=a?pin-value=1234")
        #expect(refused.status == 31)
        #expect(refused.error.contains("expected a URI without 'pin-value'"), "\(refused.error)")
        #expect(!refused.error.contains("1234"), "\(refused.error)")
        #expect(try directory.status("metadata") == nil)
    }

    @Test func keysThatOthersCouldUseAreRefused() async throws {
        try await createManifest()
        try await succeed("keys generate ../k.pem --unencrypted")
        try await succeed("keys init manifest.json --key ../k.pem")
        let path = keys.path.appending("k.pem").string
        for mode: mode_t in [0o640, 0o604, 0o620] {
            unsafe #expect(chmod(path, mode) == 0)
            let ending = try await run("sign manifest.json --key ../k.pem")
            #expect(ending.status == 31)
            #expect(ending.error.hasSuffix("hint: chmod 600 ../k.pem\n"), "\(ending.error)")
        }
    }

    /// A web server serves the files below the directory, and the targets of its links.
    @Test func noKeyIsGeneratedInTheDirectoryThatIsPublished() async throws {
        try await createManifest()
        _ = try directory.makeDirectory("below")
        _ = try keys.makeDirectory("keys")
        unsafe #expect(symlink("site/below", keys.path.appending("link").string) == 0)
        func refuse(_ arguments: String, _ file: String) async throws {
            let ending = try await run(arguments)
            #expect(ending.status == 31, "\(ending)")
            let expected =
                "stagepack: error: \(file): expected a private key outside of "
                + "'\(directory.path.resolved?.string ?? "")', which is published"
            #expect(ending.error.hasPrefix(expected), "\(ending.error)")
            // A home directory can be published: the hint names a place that is not.
            let path = directory.path.resolved?.string ?? ""
            #expect(ending.error.contains("hint: name a file outside of \(path), "), "\(ending)")
            #expect(ending.error.contains(" \(path)/metadata in a directory"), "\(ending)")
        }
        for file in [
            "p.pem", "below/p.pem", "../link/p.pem", "../link/../p.pem", "../keys/../site/p.pem",
        ] {
            try await refuse("keys init manifest.json --key \(file) --unencrypted", file)
        }
        let timestamp = "--role timestamp=below/p.pem"
        try await refuse(
            "keys init manifest.json --key ../k.pem \(timestamp) --unencrypted",
            "below/p.pem"
        )
        #expect(try directory.status("metadata") == nil)
        // Without a manifest, its metadata shows the published version.
        try await succeed("keys init manifest.json --key ../k.pem")
        try await refuse("keys generate ../link/p.pem --unencrypted", "../link/p.pem")
        try await succeed("keys generate ../keys/p.pem --unencrypted")
        #expect(try directory.status("p.pem") == nil)
        #expect(try directory.status("below/p.pem") == nil)
    }

    @Test func aKeyInTheDirectoryThatIsPublishedIsWarnedOf() async throws {
        try await createManifest()
        try await succeed("keys generate p.pem --unencrypted")
        try await succeed("keys generate ../k.pem --unencrypted")
        unsafe #expect(symlink("../k.pem", directory.path.appending("l.pem").string) == 0)
        let commands = [
            "keys init manifest.json --key p.pem --role timestamp=l.pem",
            "sign manifest.json --key p.pem --key l.pem",
            "refresh manifest.json --force --key p.pem --key l.pem",
            "rotate manifest.json --key p.pem --key l.pem",
        ]
        for command in commands {
            let ending = try await run(command)
            #expect(ending.status == 0, "\(ending)")
            for file in ["p.pem", "l.pem"] {
                let warning = "stagepack: warning: \(file): expected a private key outside of"
                #expect(ending.error.contains(warning), "\(command): \(ending.error)")
            }
        }
        let moved = try await run("rotate manifest.json --key p.pem --key ../k.pem")
        #expect(!moved.error.contains("k.pem: expected a private key"), "\(moved.error)")
    }

    @Test func aPassphraseIsNeededAndMustBeRight() async throws {
        try await createManifest()
        try write("passphrase", "right\n")
        try await succeed("keys init manifest.json --key ../k.pem --passphrase-fd 9")
        let before = try text(of: directory.path.appending("metadata/timestamp.json"))
        try write("passphrase", "wrong\n")
        let wrong = try await run("refresh manifest.json --key ../k.pem --passphrase-fd 9 --force")
        #expect(wrong.status == 31)
        #expect(
            wrong.error.hasPrefix(
                "stagepack: error: ../k.pem: the key is encrypted, and the passphrase is missing or wrong"
            )
        )
        try write("passphrase", "")
        #expect(try await run("keys generate ../n.pem --passphrase-fd 9").status == 64)
        #expect(try keys.status("n.pem") == nil)
        #expect(try text(of: directory.path.appending("metadata/timestamp.json")) == before)
    }

    @Test func anExistingKeyFileIsNeverReplaced() async throws {
        try await succeed("keys generate ../k.pem --unencrypted")
        let key = try text(of: keys.path.appending("k.pem"))
        #expect(try await run("keys generate ../k.pem --unencrypted").status == 31)
        #expect(try text(of: keys.path.appending("k.pem")) == key)
    }

    @Test func aQuietChangeThatWaitsForAnotherKeyPrintsNothing() async throws {
        let manifest = Manifest(
            application: try ApplicationID("net.example"),
            revision: 1,
            packs: [try SamplePack.small(.aurora).pack]
        )
        try write("manifest.json", String(decoding: manifest.json(), as: UTF8.self))
        for name in ["a", "b"] {
            try await succeed("keys generate ../\(name).pem --unencrypted")
        }
        try await succeed(
            "keys init manifest.json --key ../a.pem --key ../b.pem --threshold targets=2"
        )
        let change = "manifest set-policy manifest.json aurora onDemand --key ../a.pem"
        let quiet = try await run(change + " --quiet")
        #expect(quiet.status == 0 && quiet.error == "", "\(quiet)")
        let usual = try await run(change)
        #expect(usual.error.contains("needs 1 more signature"), "\(usual)")
        #expect(usual.error.contains("\nhint: with the missing keys: "), "\(usual)")
    }

    @Test func holdersOfKeysSignOneAfterTheOther() async throws {
        try await createManifest()
        for name in ["a", "b", "online"] {
            try await succeed("keys generate ../\(name).pem --unencrypted")
        }
        let half = try await succeed("keys show ../b.pem --public-key")
        try keys.write(Array(half.utf8), to: "b.pub", durably: false)
        let begun = try await state(
            "keys init manifest.json --key ../a.pem --role root=../a.pem --role root=../b.pub "
                + "--role snapshot=../online.pem --role timestamp=../online.pem --threshold root=2"
        )
        #expect(!begun.isPublished)
        #expect(begun.drafts.map(\.role) == ["root"])
        let waiting = try await state("sign manifest.json --root --key ../b.pem")
        #expect(!waiting.isPublished)
        let done = try await state("sign manifest.json --key ../a.pem --key ../online.pem")
        #expect(done.roles.map(\.version) == [1, 1, 1, 1])
        #expect(done.drafts.isEmpty)
        try await succeed("manifest lint manifest.json")
        // The online key alone cannot sign another manifest.
        let manifest = try text(of: directory.path.appending("manifest.json"))
        try write("manifest.json", manifest + "\n")
        let refused = try await run("sign manifest.json --key ../online.pem")
        #expect(refused.status == 31)
        #expect(refused.error.contains("none of the given keys signs for 'targets'"))
    }

    /// Returns the first digits of the id of a key; that of the first one in the metadata of a manifest.
    private func firstDigits(ofKeyIn subject: String) async throws -> Substring {
        let shown = try await succeed("keys show \(subject)")
        return try #require(shown.split(separator: " ").dropFirst().first).prefix(8)
    }

    @Test func aKeyIsReplaced() async throws {
        try await createManifest()
        try await succeed("keys generate ../old.pem --unencrypted")
        try await succeed("keys generate ../new.pem --unencrypted --type ecdsa-p256")
        try await succeed("keys init manifest.json --key ../old.pem")
        let id = try await firstDigits(ofKeyIn: "manifest.json")
        let state = try await state(
            "rotate manifest.json --key ../old.pem --add ../new.pem --remove \(id)"
        )
        #expect(state.roles.map(\.version) == [2, 2, 2, 2])
        #expect(try await run("sign manifest.json --key ../old.pem").status == 31)
        try await succeed("sign manifest.json --key ../new.pem")
        #expect(try await run("rotate manifest.json --key ../new.pem --remove 00").status == 64)
    }

    @Test func aKeyThatReplacesAnotherGetsItsRolesOnly() async throws {
        try await createManifest()
        for name in ["offline", "online", "next", "part", "third"] {
            try await succeed("keys generate ../\(name).pem --unencrypted")
        }
        try await succeed(
            "keys init manifest.json --key ../offline.pem --role snapshot=../online.pem "
                + "--role timestamp=../online.pem"
        )
        func roles() async throws -> [String] {
            try await succeed("keys show manifest.json").split(separator: "\n").map(String.init)
                .filter { $0.hasPrefix("roles: ") }
        }
        let online = try await firstDigits(ofKeyIn: "../online.pem")
        try await succeed(
            "rotate manifest.json --key ../offline.pem --key ../next.pem --add ../next.pem --remove \(online)"
        )
        #expect(try await roles() == ["roles: root, targets", "roles: snapshot, timestamp"])
        // The new key gets only those roles that the removed key loses.
        let next = try await firstDigits(ofKeyIn: "../next.pem")
        try await succeed(
            "rotate manifest.json --key ../offline.pem --key ../next.pem --key ../part.pem "
                + "--add ../part.pem --remove snapshot=\(next)"
        )
        #expect(
            try await roles() == ["roles: root, targets", "roles: snapshot", "roles: timestamp"]
        )
        // A key that does not replace another one gets all roles, as '--help' says.
        try await succeed("rotate manifest.json --key ../offline.pem --add ../third.pem")
        #expect(
            try await roles() == [
                "roles: root, targets", "roles: root, targets, snapshot, timestamp",
                "roles: snapshot", "roles: timestamp",
            ]
        )
    }

    /// While a draft of a root lacks signatures, 'sign' without '--root' leaves it unchanged.
    @Test func aDraftOfARootDoesNotKeepAManifestFromBeingSigned() async throws {
        try await createManifest()
        try await succeed("keys generate ../k.pem --unencrypted")
        try await succeed("keys generate ../b.pem --unencrypted")
        try await succeed("keys init manifest.json --key ../k.pem")
        try await succeed("rotate manifest.json --key ../b.pem --add ../b.pem")
        for _ in 0..<2 { try await succeed("sign manifest.json --key ../k.pem") }
        let others = try await run("sign manifest.json --root --key ../b.pem")
        #expect(others.error.contains("with the missing keys: stagepack sign manifest.json --root"))
        try await succeed("sign manifest.json --root --key ../k.pem")
    }

    @Test func aManifestThatIsNotSignedHasNoKeys() async throws {
        try await createManifest()
        let ending = try await run("keys show manifest.json")
        #expect(ending.status == 31)
        #expect(
            ending.error == """
                stagepack: error: 'manifest.json' has no root metadata
                hint: stagepack keys init manifest.json --key KEYFILE

                """
        )
    }

    @Test func signedMetadataIsNotTakenForAnExposedKey() async throws {
        try await createManifest()
        try await succeed("keys generate ../k.pem --unencrypted")
        try await succeed("keys init manifest.json --key ../k.pem")
        let ending = try await run("keys show metadata/1.root.json")
        #expect(ending.status == 31)
        #expect(ending.error.contains("expected a key in PEM"), "\(ending.error)")
        #expect(ending.error.contains("'stagepack keys generate' makes a key"), "\(ending.error)")
        #expect(!ending.error.contains("chmod"), "\(ending.error)")
    }

    @Test func aProgramSigns() async throws {
        try await createManifest()
        try await succeed("keys generate ../k.pem --unencrypted --type ecdsa-p256")
        try ProgramFile.write(Self.signer, to: directory.path.appending("signer"))
        let begun = try await state("keys init manifest.json --key exec:./signer")
        #expect(begun.roles.count == 4)
        try await succeed("manifest lint manifest.json")
        #expect(
            try await succeed("keys show exec:./signer --public-key")
                == (try await succeed("keys show ../k.pem --public-key"))
        )
        try await succeed("refresh manifest.json --key exec:./signer --force")
        #expect(try text(of: directory.path.appending("ended")) == "111")
    }

    @Test func aProgramThatStaysAfterItsWorkIsKilled() async throws {
        try await createManifest()
        try await succeed("keys generate ../k.pem --unencrypted --type ecdsa-p256")
        try ProgramFile.write(
            Self.signer + "\nimport time\ntime.sleep(1000)\n",
            to: directory.path.appending("signer")
        )
        let ending = try await run("keys init manifest.json --key exec:./signer")
        #expect(ending.status == 0)
        #expect(
            ending.error.contains(
                "stagepack: warning: signing program './signer', asked to end, took longer than "
                    + "5 seconds, and was ended\n"
            ),
            "\(ending.error)"
        )
        try await succeed("manifest lint manifest.json")
    }

    /// Begins signatures by the program, which has so many seconds for each answer.
    private func beginSigning(within seconds: Int) async throws -> Program.Ending {
        try await run("keys init manifest.json --key exec:./signer --signer-timeout \(seconds)")
    }

    @Test(arguments: [
        ("exit 1", "for its public key, ended without an answer"),
        ("read x; echo hello", "for its public key, gave an answer that cannot be read"),
        (#"read x; echo '{"error":"no token"}'"#, "for its public key, refused: no token"),
        (
            #"read x; echo '{"scheme":"rot13","public":""}'"#,
            "for its public key, gave an answer that cannot be read"
        ),
        ("exec sleep 1000", "for its public key, took longer than 1 second, and was ended"),
        (
            #"""
            read x; echo '{"scheme":"ed25519","public":"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"}'
            sleep 1000
            """#,
            "to sign version 1 of root metadata with key 74c181c7, took longer than 5 seconds, and was ended"
        ),
        (
            #"read x; echo '{"scheme":"ed25519","public":"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"}'; read x; echo '{"signature":"AAAA"}'"#,
            "to sign version 1 of root metadata with key 74c181c7, gave a signature that its own key "
                + "does not verify"
        ),
    ])
    func aProgramThatDoesNotSignIsNamed(script: String, message: String) async throws {
        try await createManifest()
        try ProgramFile.write("#!/bin/sh\n\(script)\n", to: directory.path.appending("signer"))
        let timeout = message.contains("1 second") ? 1 : message.contains("5 seconds") ? 5 : 60
        var (ending, words) = (try await beginSigning(within: timeout), message)
        // A busy machine may not start the program in this time.
        for longer in [30, 110]
        where timeout == 5 && ending.error.contains("for its public key, took longer") {
            ending = try await beginSigning(within: longer)
            words = message.replacing("5 seconds", with: "\(longer) seconds")
        }
        #expect(ending.status == 31)
        #expect(
            ending.error.contains("stagepack: error: signing program './signer', asked \(words)"),
            "\(ending.error)"
        )
        #expect(try directory.status("metadata") == nil)
    }

    @Test func aManifestChangedWithoutAKeyHasAHintToSignIt() async throws {
        try await createManifest()
        try await succeed("keys generate ../k.pem --unencrypted")
        try write("content", "content")
        try write(
            "recipe.json",
            """
            { "assetPackID": "aurora", "downloadPolicy": { "onDemand": {} },
              "fileSelectors": [ { "file": "content" } ] }
            """
        )
        try await succeed("package recipe.json -q")
        let add = "manifest add manifest.json aurora.tar.zst --recipe recipe.json --pack-version"
        #expect(try await run("\(add) 1 --key ../k.pem").status == 31)
        try await succeed("keys init manifest.json --key ../k.pem")
        let told = try await run("\(add) 1")
        #expect(told.status == 0)
        #expect(told.error.hasSuffix("hint: stagepack sign manifest.json --key KEYFILE\n"))
        #expect(try await run("manifest lint manifest.json").status == 3)
        try await succeed("\(add) 2 --key ../k.pem")
        try await succeed("manifest lint manifest.json")
        try await succeed("manifest set-policy manifest.json aurora prefetch --key ../k.pem")
        try await succeed("manifest lint manifest.json")
    }

    @Test func aKeyThatCannotReachItsThresholdIsNotMade() async throws {
        try await createManifest()
        let ending = try await run(
            "keys init manifest.json --key ../k.pem --unencrypted --threshold root=2"
        )
        #expect(ending.status == 64)
        #expect(try keys.status("k.pem") == nil)
    }

    @Test func aPassphraseMayEndInACarriageReturn() async throws {
        try await createManifest()
        try write("passphrase", "correct horse\r\n")
        try await succeed("keys init manifest.json --key ../k.pem --passphrase-fd 9")
        try write("passphrase", "correct horse\n")
        try await succeed("refresh manifest.json --key ../k.pem --passphrase-fd 9 --force")
    }

    @Test func anOlderRevisionIsNotSigned() async throws {
        try await createManifest()
        let first = try text(of: directory.path.appending("manifest.json"))
        let revision = try #require(first.firstMatch(of: /"revision" ?: ?(\d+)/))
        let later = first.replacing(revision.output.0, with: "\"revision\": 7")
        try write("manifest.json", later)
        try await succeed("keys generate ../k.pem --unencrypted")
        try await succeed("keys init manifest.json --key ../k.pem")
        try write("manifest.json", first)
        let refused = try await run("sign manifest.json --key ../k.pem")
        #expect(refused.status == 11, "\(refused)")
        #expect(refused.error.contains("the published manifest has revision 7"))
        try write("manifest.json", later + "\n")
        try await succeed("sign manifest.json --key ../k.pem")
    }

    @Test func metadataOfOneDirectoryIsSignedByOneCommandAtATime() async throws {
        try await createManifest()
        try await succeed("keys generate ../k.pem --unencrypted")
        try await succeed("keys init manifest.json --key ../k.pem")
        let lock = try LockFile.attempt(".metadata.lock", in: directory, mode: .exclusive)
        let ending = try await run("refresh manifest.json --key ../k.pem --force")
        #expect(ending.status == 42, "\(ending)")
        _ = consume lock
        try await succeed("refresh manifest.json --key ../k.pem --force")
        #expect(try directory.entries().allSatisfy { !$0.path.string.hasSuffix(".lock") })
    }

    /// A signing program that uses OpenSSL's command.
    private static let signer = #"""
        #!/usr/bin/python3
        import base64, json, os, subprocess, sys, tempfile
        # Nothing is open but the three streams.
        opened = [int(n) for n in os.listdir("/proc/self/fd")]
        assert all(n <= 3 for n in opened), opened
        for line in sys.stdin:
            request = json.loads(line)
            if request["request"] == "public-key":
                pem = subprocess.run(["openssl", "pkey", "-in", "../k.pem", "-pubout"],
                                     capture_output=True, check=True, text=True).stdout
                answer = {"scheme": "ecdsa-sha2-nistp256", "public": pem}
            else:
                made = subprocess.run(["openssl", "dgst", "-sha256", "-sign", "../k.pem"],
                                      input=base64.b64decode(request["message"]),
                                      capture_output=True, check=True).stdout
                answer = {"signature": base64.b64encode(made).decode()}
            print(json.dumps(answer), flush=True)
        with open("ended", "a") as file:
            file.write("1")
        """#

    /// A timer must not let the metadata expire while the publisher works on the manifest.
    @Test func metadataOfAMissingManifestIsRenewed() async throws {
        try await createManifest()
        try await succeed("keys init manifest.json --key ../k.pem --unencrypted")
        let names = try directory.entries().map(\.path.string).filter { $0.hasSuffix(".json") }
        try directory.rename("manifest.json", to: "away", in: directory)
        let renewed = try await state("refresh manifest.json --key ../k.pem --force")
        #expect(renewed.isPublished)
        #expect(renewed.roles.filter(\.isNew).map(\.role) == ["snapshot", "timestamp"])
        try directory.rename("away", to: "manifest.json", in: directory)
        let after = try directory.entries().map(\.path.string).filter { $0.hasSuffix(".json") }
        #expect(after.sorted() == names.sorted())
        #expect(try await run("refresh other.json --key ../k.pem --force").status == 64)
    }
}
