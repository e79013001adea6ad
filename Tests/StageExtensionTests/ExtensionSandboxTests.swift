import Glibc
import StageExtension
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Operations that the sandbox of an extension permits and denies.
@Suite(.directory, .landlock)
struct ExtensionSandboxTests {
    /// Python that prints an empty response if `body` raises an error of this number, and otherwise ends with
    /// status 5.
    private static func refused(_ error: Errno, _ body: String) -> ExtensionHost {
        let lines = body.split(separator: "\n").map { "    \($0)" }.joined(separator: "\n")
        return Bench.python(
            """
            import os, socket, sys
            try:
            \(lines)
            except OSError as error:
                if error.errno != \(error.rawValue): sys.exit(f"other error: {error}")
                print('{"downloads":[]}')
                sys.exit(0)
            sys.exit(5)
            """
        )
    }

    @Test func filesOutsideTheSandboxCannotBeRead() async throws {
        let bench = try Bench()
        let secret = try bench.root.file(creating: "secret")
        for path in [secret.path.string, "/etc/shadow", "/etc/fstab"] {
            let host = Self.refused(.permissionDenied, "open('\(path)').read()")
            #expect(await bench.outcome(host) == .success([]), "\(path)")
        }
        let listing = Self.refused(.permissionDenied, "os.listdir('/home')")
        #expect(await bench.outcome(listing) == .success([]))
    }

    @Test func filesOutsideTheSandboxCannotBeChanged() async throws {
        let bench = try Bench()
        let secret = try bench.root.file(creating: "secret")
        try secret.write([1, 2, 3].span, at: 0)
        let path = secret.path.string
        for body in [
            "open('\(path)', 'w')", "open('\(path)', 'a')", "os.truncate('\(path)', 0)",
            "os.remove('\(path)')", "os.rename('\(path)', 'secret')",
            "open('\(bench.root.path)/new', 'w')", "os.mkdir('\(bench.root.path)/new')",
            "os.symlink('a', '\(bench.root.path)/new')", "open('/tmp/new-by-extension', 'w')",
            "open('\(bench.request.manifest)', 'a')", "os.remove('\(bench.request.manifest)')",
            "open('/usr/new-by-extension', 'w')", "open('/dev/shm/new-by-extension', 'w')",
        ] {
            #expect(
                await bench.outcome(Self.refused(.permissionDenied, body)) == .success([]),
                "\(body)"
            )
        }
        let status = try secret.status()
        #expect(status.size == 3)
        _ = try bench.root.remove("secret")
        try bench.expectNothingLeft()
    }

    @Test func modesOfOthersFilesStayAsTheyAre() async throws {
        let bench = try Bench()
        let file = try bench.root.file(creating: "shared/file")
        let before = try file.status()
        let outcome = await bench.outcome(
            Bench.python(
                """
                import os
                for path in ['\(bench.request.manifest)', '\(file.path)']:
                    os.chmod(path, 0o777)
                    os.chown(path, 1, 1)
                    os.utime(path, (1, 1))
                print('{"downloads":[]}')
                """
            )
        )
        #expect(outcome == .success([]))
        #expect(try file.status() == before)
        #expect(try bench.root.status("manifest.json")?.mode == 0o644)
    }

    @Test func thereIsNoNetworkNotEvenOnThisMachine() async throws {
        let bench = try Bench()
        for family in ["AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"] {
            for kind in ["SOCK_STREAM", "SOCK_DGRAM"] {
                let host = Self.refused(
                    .permissionDenied,
                    "socket.socket(socket.\(family), socket.\(kind))"
                )
                #expect(await bench.outcome(host) == .success([]), "\(family)")
            }
        }
        let host = Self.refused(
            .permissionDenied,
            "socket.create_connection(('127.0.0.1', 80), timeout=1)"
        )
        #expect(await bench.outcome(host) == .success([]))
    }

    @Test func filesThatTheProgramWroteCannotBeExecuted() async throws {
        let bench = try Bench()
        let body = """
            import shutil, subprocess
            shutil.copy('/bin/true', 'true')
            subprocess.run(['./true'])
            """
        #expect(await bench.outcome(Self.refused(.permissionDenied, body)) == .success([]))
    }

    @Test func theProgramHasNoPrivilegesAndAnEmptyEnvironment() async throws {
        let bench = try Bench()
        let outcome = await bench.outcome(
            Bench.python(
                """
                import os, sys
                status = dict(line.split() for line in open('/proc/self/status') if line.count('\\t') == 1
                              and len(line.split()) == 2)
                status = {name.rstrip(':'): value for name, value in status.items()}
                assert int(status['CapEff'], 16) == 0, status['CapEff']
                assert int(status['CapPrm'], 16) == 0, status['CapPrm']
                assert status['NoNewPrivs'] == '1'
                assert status['SigBlk'] == '0000000000000000', status['SigBlk']
                assert os.getcwd() == '\(bench.scratch)', os.getcwd()
                assert os.getpgid(0) == os.getpid()
                names = set(os.environ) - {'LC_CTYPE'}
                assert names == {'PATH', 'LANG', 'HOME', 'TMPDIR'}, names
                assert os.environ['HOME'] == os.environ['TMPDIR'] == '\(bench.scratch)'
                files = {int(name) for name in os.listdir('/proc/self/fd')}
                assert len(files) == 4, files
                print('{"downloads":[]}')
                """
            )
        )
        #expect(outcome == .success([]))
    }

    @Test func theManifestAndTheSharedFolderAreAtHand() async throws {
        let bench = try Bench()
        let outcome = await bench.outcome(
            Bench.python(
                """
                import json, os, sys
                message = json.load(sys.stdin)
                manifest = json.load(open(message['manifest']))
                assert [pack['id'] for pack in manifest['packs']] \
                    == [pack['id'] for pack in message['packs']]
                os.mkdir(message['container'] + '/kept')
                open('draft', 'w').write('a')
                os.rename('draft', message['container'] + '/kept/file')
                print(json.dumps({'downloads': [{'pack': message['packs'][0]['id']}]}))
                """
            )
        )
        let dawn = PackID(unchecked: "dawn")
        #expect(outcome == .success([.pack(dawn, essential: nil, priority: nil)]))
        #expect(try bench.root.status("shared/kept/file")?.size == 1)
        #expect(try bench.root.status("scratch") == nil)
    }

    @Test func aProgramInAFolderOfItsOwnReadsWhatIsBesideIt() async throws {
        let bench = try Bench(.install)
        _ = try bench.root.makeDirectory("program")
        let text = "#!/bin/sh\ncat \"$(dirname \"$0\")/answer\"\n"
        let program = bench.root.path.pushing("program/choose")
        try ProgramFile.write(text, to: program)
        _ = try bench.root.file(creating: "program/answer").written(#"{"downloads":[]}"#)
        #expect(await bench.outcome(Bench.host(program.string)) == .success([]))
    }

    @Test func aFileThatWasDownloadedIsMovedOrGone() async throws {
        let bench = try Bench()
        let download = ExtensionDownload.url(
            ExtensionURLDownload(
                identifier: "news",
                url: "https://cdn.example.com/news",
                fileSize: 4,
                applicationGroup: Bench.group
            )
        )
        let text = """
            import json, os, sys
            message = json.load(sys.stdin)
            if message['download']['identifier'] == 'news':
                os.rename(message['file'], message['container'] + '/news')
            print('{}')
            """
        let scratch = try bench.root.makeDirectory("scratch")
        let file = try scratch.file(creating: "received").written("news")
        try await Bench.python(text).finished(download, file: file, for: bench.request)
        #expect(try bench.root.status("shared/news")?.size == 4)
        #expect(try bench.root.status("scratch") == nil)
        let again = try bench.root.makeDirectory("scratch").file(creating: "a").written("news")
        try await Bench.shell("echo '{}'").finished(download, file: again, for: bench.request)
        #expect(try bench.root.status("scratch") == nil)
    }
}

extension File {
    /// Writes a text into a new file, and returns where it is.
    consuming func written(_ text: String) throws(FileError) -> FilePath {
        try write(Array(text.utf8).span, at: 0)
        return path
    }
}
