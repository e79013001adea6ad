import StageSystem
import StageTesting
import Subprocess
import SystemPackage
import Testing

/// nginx from its Debian package, with a log of its responses; it ends with the object.
final class NginxServer: Sendable {
    /// The directory that it serves; uploads are stored below `/up/`.
    let root: FilePath
    let baseURL: String
    private let directory: FilePath
    private let process: StartedProcess

    /// Starts nginx below a directory; each response has this rate, in bytes per second as nginx writes it.
    init(below directory: FilePath, rate: String) async throws {
        root = directory.appending("www")
        self.directory = directory
        let started = try await pollForValue("nginx does not start") {
            try await Self.start(below: directory, rate: rate)
        }
        baseURL = "http://127.0.0.1:\(started.port)"
        process = started.process
    }

    /// Starts nginx at a port that was free before, or returns `nil` if it ends: another process may have taken the port.
    private static func start(
        below directory: FilePath,
        rate: String
    ) async throws -> (process: StartedProcess, port: String)? {
        let port = try await run(prepare, directory.string, rate)
        let process = try StartedProcess(
            [
                directory.appending("package/usr/sbin/nginx").string, "-e",
                "\(directory)/error.log",
                "-c", "\(directory)/nginx.conf",
            ],
            log: directory.appending("nginx.log")
        )
        // nginx writes its PID file once the port is bound.
        let file = directory.appending("nginx.pid")
        try await poll("nginx neither starts nor ends") {
            try process.status != nil || !text(of: file).isEmpty
        }
        guard process.status == nil else { return nil }
        return (process, port)
    }

    /// Returns the bytes of sent bodies and the number of requests, by path.
    func counts() throws -> [String: (bytes: Int, requests: Int)] {
        var counts: [String: (bytes: Int, requests: Int)] = [:]
        for line in try text(of: directory.appending("access.log")).split(separator: "\n") {
            let fields = line.split(separator: " ")
            // nginx may be writing the last line.
            guard fields.count == 2 else { continue }
            let count = counts["\(fields[0])", default: (0, 0)]
            counts["\(fields[0])"] = (count.bytes + (Int(fields[1]) ?? 0), count.requests + 1)
        }
        return counts
    }

    private static func run(_ script: String, _ arguments: String...) async throws -> String {
        let cache = try DaemonProcess.program.removingLastComponent().removingLastComponent()
            .appending("debian-packages").string
        let result = try await Subprocess.run(
            .path("/bin/sh"),
            arguments: Arguments(["-c", script, "sh", cache] + arguments),
            output: .string(limit: 1 << 16),
            error: .string(limit: 1 << 16)
        )
        try #require(result.terminationStatus.isSuccess, "\(result.standardError)")
        return result.standardOutput
    }

    /// Fetches the package, as other tests do, writes a configuration, and prints the port.
    private static let prepare = """
        set -e
        mkdir -p "$1" "$2/www/up" "$2/package" "$2/temporary"
        chmod 777 "$2/www/up" "$2/temporary"
        cd "$1"
        exec 9>lock; flock 9
        fetch() { apt-get -q download nginx >&2; }
        have() { ls nginx_*.deb >/dev/null 2>&1; }
        have || fetch || { apt-get -q update >&2; fetch; }
        dpkg-deb --extract "$(ls nginx_*.deb | head -n 1)" "$2/package"
        port=$(python3 -c 'import socket
        s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1], end="")')
        {
            [ "$(id -u)" != 0 ] || echo 'user root;'
            cat <<END
        daemon off;
        pid $2/nginx.pid;
        worker_processes 1;
        events { worker_connections 1024; }
        http {
            log_format sent '\\$uri \\$body_bytes_sent';
            access_log $2/access.log sent;
            default_type application/octet-stream;
            client_body_temp_path $2/temporary;
            proxy_temp_path $2/temporary;
            fastcgi_temp_path $2/temporary;
            uwsgi_temp_path $2/temporary;
            scgi_temp_path $2/temporary;
            server {
                listen 127.0.0.1:$port;
                root $2/www;
                limit_rate $3;
                location /up/ { dav_methods PUT; client_max_body_size 100m; }
            }
        }
        END
        } >"$2/nginx.conf"
        printf %s "$port"
        """
}
