import Foundation
import StageControl
import StageSystem
import StageTesting
import Subprocess
import SystemPackage
import Testing

/// A client program that is independent of StagePack's code.
///
/// It is a client of another user, one that is killed, or the handler of a session, written in Python from the
/// description of the protocol.
struct Peer {
    /// Note that a handler or client wrote about itself.
    struct Note: Decodable {
        /// Event: "started", "attached", "acknowledged", "child".
        var what: String
        var process: Int32
        var time: Double
        var session: String?
        var launch: String?
        var sequences: [Int64]?
    }

    let directory: FilePath
    let socket: FilePath

    /// Writes the program into the daemon's directory.
    init(_ daemon: DaemonProcess) throws {
        directory = daemon.directory
        socket = daemon.socket
        let folder = try Directory.open(directory)
        try folder.write(Array(Self.program.utf8), to: "peer.py", durably: false)
        try folder.changeMode(of: "peer.py", to: [.ownerReadWrite, .groupRead, .otherRead])
    }

    /// Returns the command that starts the program; `mode` selects what it does.
    func command(_ mode: String, _ arguments: String...) -> [String] {
        let path = directory.appending("peer.py").string
        return ["/usr/bin/python3", path, directory.appending("notes").string, mode] + arguments
    }

    /// Returns a handler that runs the program in `mode`.
    func handler(_ mode: String, _ arguments: String...) -> LaunchHandler {
        LaunchHandler(command: command(mode) + arguments)
    }

    /// Notes written so far.
    func notes(_ what: String) throws -> [Note] {
        try text(of: directory.appending("notes")).split(separator: "\n")
            .map { try JSONDecoder().decode(Note.self, from: Data($0.utf8)) }
            .filter { $0.what == what }
    }

    /// Waits until a note was written a number of times.
    func wait(for what: String, count: Int = 1) async throws {
        try await poll("no process wrote '\(what)' \(count) times") {
            try notes(what).count >= count
        }
    }

    /// Sends a request to the daemon as a user, and returns the status and the body of the response.
    func ask(
        as user: UInt32,
        _ group: UInt32,
        _ method: String,
        _ path: String,
        _ body: String = "",
        privileges: [String] = ["--clear-groups"]
    ) async throws -> (status: Int, body: String) {
        let text = try await run(
            as: user,
            group,
            command("ask", method, path, body),
            privileges: privileges
        )
        let parts = text.split(separator: "\n", maxSplits: 1)
        return (Int(parts.first ?? "") ?? 0, parts.count > 1 ? String(parts[1]) : "")
    }

    /// Waits until the session 's' of a user, and of the group with the same number, has `count` events.
    func wait(forEvents count: Int, of user: UInt32) async throws {
        try await poll("the events do not come") {
            try await ask(as: user, user, "GET", "/v1/sessions/s").body
                .contains("\"lastEvent\":\(count)")
        }
    }

    /// Runs a program as a user, which must succeed, and returns its output; `privileges` are options of setpriv(1),
    /// by default one without further groups.
    func run(
        as user: UInt32,
        _ group: UInt32,
        _ command: [String],
        privileges: [String] = ["--clear-groups"]
    ) async throws -> String {
        let identity = ["--reuid=\(user)", "--regid=\(group)"] + privileges
        let environment: [Environment.Key: String] = ["STAGEPACK_SOCKET": socket.string]
        let result = try await Subprocess.run(
            .path("/usr/bin/setpriv"),
            arguments: Arguments(identity + command),
            environment: .custom(environment),
            output: .string(limit: 1 << 22),
            error: .string(limit: 1 << 20)
        )
        try #require(result.terminationStatus.isSuccess, "\(result.standardError)")
        return result.standardOutput
    }

    private static let program = """
        import http.client, json, os, signal, socket, sys, time

        notes, mode, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
        session = os.environ.get('STAGEPACK_SESSION', 's')
        launch = os.environ.get('STAGEPACK_LAUNCH')

        def note(what, **more):
            entry = dict(what=what, process=os.getpid(), time=time.time(), session=session,
                         launch=launch, **more)
            file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.write(file, (json.dumps(entry) + '\\n').encode())

        class Connection(http.client.HTTPConnection):
            def connect(self):
                self.sock = socket.socket(socket.AF_UNIX)
                self.sock.connect(os.environ['STAGEPACK_SOCKET'])

        def ask(method, path, body=None):
            connection = Connection('stagepack')
            if isinstance(body, dict):
                body = json.dumps(body)
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

        def events():
            connection = Connection('stagepack')
            token = '&launch=' + launch if launch else ''
            connection.request('GET', '/v1/sessions/' + session + '/events?after=0' + token)
            answer = connection.getresponse()
            if answer.status != 200:
                sys.exit(3)
            note('attached')
            while line := answer.readline():
                yield json.loads(line)

        def take_in():
            sequences = []
            for event in events():
                if 'sequence' in event:
                    sequences.append(event['sequence'])
                if event['kind'] in ('finishedEvents', 'challenged'):
                    break
            return sequences

        def acknowledge(sequences):
            body = dict(sequence=max(sequences))
            if launch:
                body['launch'] = launch
            status, _ = ask('POST', '/v1/sessions/' + session + '/acknowledge', body)
            if status == 204:
                note('acknowledged', sequences=sequences)

        def create(urls):
            tasks = [dict(token=url, kind='download', url=url) for url in urls]
            body = dict(tasks=tasks)
            if launch:
                body['launch'] = launch
            return ask('POST', '/v1/sessions/' + session + '/tasks', body)

        if mode == 'ask':
            status, body = ask(*[argument for argument in arguments if argument])
            print(status)
            print(body, end='')
            sys.exit(0)
        note('started')
        if mode == 'acknowledge':
            acknowledge(take_in())
        elif mode == 'create':
            acknowledge(take_in())
            create(arguments)
            note('created')
        elif mode == 'client':
            create(arguments)
            for event in events():
                pass
        elif mode == 'hold':
            take_in()
            note('held')
            time.sleep(600)
        elif mode == 'extend':
            sequences = take_in()
            until = time.time() + float(arguments[0])
            while time.time() < until:
                ask('POST', '/v1/sessions/' + session + '/extend')
                time.sleep(0.5)
            acknowledge(sequences)
        elif mode == 'hang':
            signal.signal(signal.SIGTERM, lambda *_: note('asked'))
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                note('child')
            while True:
                time.sleep(600)
        """
}
