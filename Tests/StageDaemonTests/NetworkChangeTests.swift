import StageControl
import StageModel
import StageTesting
import SystemPackage
import Testing

/// New networks without a service that reports them: the daemon runs in a separate network namespace.
@Suite(.directory, .daemon, .ownNetwork)
struct NetworkChangeTests {
    private let daemon: DaemonProcess

    init() throws { daemon = try .required() }

    /// Runs a server that responds to every request in a child process, and executes the daemon.
    private static let server = """
        import os, socket, sys
        listener = socket.create_server(("", 8000))
        if os.fork() == 0:
            while True:
                client, _ = listener.accept()
                client.recv(65536)
                client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 1\\r\\n\\r\\nx")
                client.close()
        os.execv(sys.argv[1], sys.argv[1:])
        """

    /// Runs a server that responds to every request with half of a body, and executes the daemon.
    private static let silentServer = """
        import os, socket, sys
        listener = socket.create_server(("", 8000))
        if os.fork() == 0:
            clients = []
            while True:
                client, _ = listener.accept()
                client.recv(65536)
                client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nx")
                clients.append(client)
        os.execv(sys.argv[1], sys.argv[1:])
        """

    /// Starts the daemon with a server, after a command in its network namespace.
    private func start(
        _ server: String = Self.server,
        after command: String = "true"
    ) async throws {
        let bus = daemon.directory.appending("no-bus").string
        // The first retry delay is half an hour on average.
        try daemon.configure(
            #"{"retryBase": 3600, "settlingTime": 0.2, "busAddress": "unix:path=\#(bus)"}"#
        )
        let script = #"ip link set lo up && \#(command) && exec python3 -c "$0" "$@""#
        try await daemon.start(by: ["/usr/bin/unshare", "-n", "/bin/sh", "-c", script, server])
        try await daemon.makeSession()
    }

    /// Runs a command in the network of the daemon.
    private func change(_ command: String) async throws {
        let process = try #require(daemon.process)
        let entering = ["/usr/bin/nsenter", "--target", "\(process)", "--net"]
        let log = daemon.directory.appending("network.log")
        let change = try StartedProcess(entering + ["/bin/sh", "-c", command], log: log)
        try await poll("the network does not change") { change.status != nil }
        let words = try text(of: log)
        #expect(change.status == 0, "\(words)")
    }

    @Test func anAddressThatAppearsEndsTheDelaysOfHostsThatWereNotReached() async throws {
        try await start()
        let id = try await daemon.download("http://198.51.100.1:8000/a")
        try await daemon.wait(for: [.backoff], of: id)
        try await change("ip address add 198.51.100.1/32 dev lo")
        // The task's retry delay exceeds the time limit of `wait(for:of:)`, so only the network change can resume the task.
        try await daemon.wait(for: .completed, of: id)
        // If the daemon first saw the network after the attempt, the task resumes by changed conditions, before the change is logged.
        try await poll("the change is not logged") {
            try daemon.said().contains("The network has changed")
        }
    }

    @Test func aConnectionWhoseAddressDisappearsEndsBeforeItStalls() async throws {
        try await start(Self.silentServer, after: "ip address add 198.51.100.1/32 dev lo")
        let id = try await daemon.download("http://198.51.100.1:8000/a")
        try await poll("no byte arrives") {
            try await daemon.client.task(id).bytesReceived > .zero
        }
        try await change("ip address delete 198.51.100.1/32 dev lo")
        try await daemon.wait(for: [.backoff], of: id)
        let problem = try await daemon.client.task(id).lastProblem
        #expect(problem?.contains("this machine has lost the address") == true)
    }
}
