import StageSystem
import StageTesting
import SystemPackage
import Testing

/// A name server that never answers: the program runs in namespaces of its own, which takes root.
@Suite(.apart, .directory, .mountNamespace)
struct NameLookupTests {
    /// Runs the program with a resolver that takes minutes to fail; the status is 124 if the program does not end before.
    private func run(_ arguments: String...) async throws -> Program.Ending {
        let directory = try TemporaryDirectory.required()
        let settings = "nameserver 127.0.0.1\noptions timeout:30 attempts:5\n"
        try directory.write(Array(settings.utf8), to: "resolv.conf", durably: false)
        var program = Program()
        let script = #"""
            ip link set lo up && mount --bind "$0" /etc/resolv.conf || exit 99
            exec timeout 100 python3 -c "$@"
            """#
        let path = directory.path.appending("resolv.conf").string
        program.wrapper =
            ["/usr/bin/unshare", "-m", "-n", "/bin/sh", "-c", script, path, Self.server]
            + [try Program.path.string]
        let source = ["--manifest", "https://cdn.example.org/manifest.json"]
        let container = ["--container", directory.path.appending("container").string]
        return try await program.run(["prefetch"] + arguments + source + container)
    }

    /// Opens a socket as the name server, from which nothing is read, and executes the program.
    private static let server = """
        import os, socket, sys
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listener.bind(("127.0.0.1", 53))
        listener.set_inheritable(True)
        os.execv(sys.argv[1], sys.argv[1:])
        """

    @Test func aDeadlineEndsALookup() async throws {
        let ending = try await run("--deadline", "1")
        #expect(ending.status == 75, "\(ending)")
    }

    @Test func aTimeLimitEndsALookup() async throws {
        let ending = try await run("--connect-timeout", "1", "--attempts", "1")
        #expect(ending.status == 10, "\(ending)")
        let words = "the name of cdn.example.org:443 was not resolved within 1 second"
        #expect(ending.error.contains(words), "\(ending)")
    }
}
