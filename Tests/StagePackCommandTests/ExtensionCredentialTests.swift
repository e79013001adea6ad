import Glibc
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Passwords of the user who runs a command, beside files that an extension asks for.
@Suite(
    .server,
    .directory,
    .enabled("a network of the test's own takes root and mounts") {
        guard geteuid() == 0 else { return false }
        return await Program.canMount
    }
)
struct ExtensionCredentialTests {
    /// Runs a command in a network of its own, with another one at the end of a cable: there a server of
    /// HTTPS has two addresses.
    ///
    /// The server writes down how it was asked: the address, the path and the field with the password.
    private static let network = """
        set -e
        cd "$1"
        shift
        openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out ca.pem -days 36500 \\
            -subj '/CN=test' -addext 'subjectAltName=IP:192.0.2.1,IP:192.0.2.2' 2>/dev/null
        mkfifo ready
        unshare -n python3 -c '
        import http.server, os, ssl, subprocess, threading
        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_): pass
            def do_GET(self):
                line = [self.request.getsockname()[0], self.path, self.headers["Authorization"] or "nothing"]
                with open("../asked", "a") as file: print(*line, file=file)
                super().do_GET()
        os.chdir("served")
        end = "end-%d" % os.getpid()
        for command in [f"link add {end} type veth peer name inner netns {os.getpid()}",
                        f"address add 192.0.2.3/24 dev {end}", f"link set {end} up"]:
            subprocess.run(["nsenter", "-t", str(os.getppid()), "-n", "ip", *command.split()], check=True)
        for command in ["address add 192.0.2.1/24 dev inner", "address add 192.0.2.2/24 dev inner",
                        "link set inner up"]:
            subprocess.run(["ip", *command.split()], check=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain("../ca.pem", "../key.pem")
        for address in ["192.0.2.1", "192.0.2.2"]:
            server = http.server.ThreadingHTTPServer((address, 443), Handler)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever).start()
        open("../ready", "w").close()
        ' &
        trap 'kill $!' EXIT
        : <ready
        "$@"
        """

    @Test func aPasswordForAnotherHostIsNotUsedForAnExtension() async throws {
        var installed = try await Installed()
        let directory = installed.world.directory
        let served = try directory.makeDirectory("served")
        let manifest = Manifest(
            application: installed.registration.application,
            revision: 1,
            packs: []
        )
        try served.write(manifest.json(), to: "manifest.json", durably: false)
        try served.write(Array("abcd".utf8), to: "file", durably: false)
        let passwords = """
            machine 192.0.2.1 login ada password lovelace
            machine 192.0.2.2 login ada password lovelace
            """
        try directory.write(Array(passwords.utf8), to: "netrc", durably: false)
        let program = """
            #!/usr/bin/python3
            import json, sys
            message = json.load(sys.stdin)
            answer = {"protocol": 1, "downloads": []}
            if message["kind"] == "downloads":
                answer["downloads"] = [
                    {"identifier": host, "url": "https://%s/file" % host, "fileSize": 4,
                     "applicationGroup": message["applicationGroup"]}
                    for host in ["192.0.2.1", "192.0.2.2"]]
            json.dump(answer, sys.stdout)
            """
        let mode = FilePermissions(rawValue: 0o755)
        try directory.file(creating: "choose", permissions: mode)
            .write(Array(program.utf8).span, at: 0)
        installed.registration.manifestURLs = ["https://192.0.2.1/manifest.json"]
        installed.registration.downloaderExtension = .init(
            path: directory.path.appending("choose").string
        )
        try installed.install()
        let path = directory.path.string
        installed.world.program.wrapper =
            ["/usr/bin/unshare", "-n", "/bin/sh", "-c", Self.network, "sh", path]
            + installed.world.program.wrapper
        let ending = try await installed.run(
            "prefetch",
            "--all",
            "--attempts",
            "1",
            "--cacert",
            "\(path)/ca.pem",
            "--netrc-file",
            "\(path)/netrc"
        )
        #expect(ending.error == "")
        #expect(ending.status == 0)
        let asked = try text(of: directory.path.appending("asked")).split(separator: "\n")
        #expect(
            asked.sorted() == [
                "192.0.2.1 /file Basic YWRhOmxvdmVsYWNl",
                "192.0.2.1 /manifest.json Basic YWRhOmxvdmVsYWNl",
                "192.0.2.2 /file nothing",
            ]
        )
    }
}
