import Glibc
import StageSystem
import Subprocess
import SystemPackage
import Testing

/// nginx from its Debian package, on loopback, while a function runs.
struct Nginx {
    /// The URL of the served directory.
    let baseURL: String

    /// Serves the content of a directory while `body` runs.
    ///
    /// Encrypted with the certificate `server.pem` in `directory`, if requested; then what is below
    /// `/to-plain/` redirects to plain HTTP.
    static func serving<Value>(
        _ root: FilePath,
        below directory: FilePath,
        isEncrypted: Bool = false,
        _ body: (Nginx) async throws -> Value
    ) async throws -> Value {
        let path = directory.appending("nginx")
        try await DebianPackage.unpack("nginx", into: path)
        let port = try await shell(Self.freePort)
        let tls = isEncrypted ? " ssl http2" : ""
        let certificate = """
            ssl_certificate \(directory)/server.pem; ssl_certificate_key \(directory)/server.key;
            rewrite ^/to-plain/(.*)$ http://127.0.0.1:\(port)/$1 redirect;
            """
        try await shell(
            Self.start,
            path.string,
            root.string,
            port + tls,
            isEncrypted ? certificate : ""
        )
        do {
            let scheme = isEncrypted ? "https" : "http"
            let value = try await body(Nginx(baseURL: "\(scheme)://127.0.0.1:\(port)/"))
            try await shell(Self.stop, path.string)
            return value
        } catch {
            try await shell(Self.stop, path.string)
            throw error
        }
    }

    /// Prints a free port.
    private static let freePort = """
        exec python3 -c 'import socket
        s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1], end="")'
        """

    /// Starts nginx, and ends once it has bound its port: the master process continues in the background.
    private static let start = """
        set -e
        cd "$1"
        mkdir -p temporary
        {
            [ "$(id -u)" != 0 ] || echo 'user root;'
            cat <<END
        pid $1/nginx.pid;
        error_log $1/error.log;
        worker_processes 1;
        events {}
        http {
            access_log off;
            sendfile on;
            default_type application/octet-stream;
            client_body_temp_path $1/temporary;
            proxy_temp_path $1/temporary;
            fastcgi_temp_path $1/temporary;
            uwsgi_temp_path $1/temporary;
            scgi_temp_path $1/temporary;
            server { listen 127.0.0.1:$3; root $2; $4 }
        }
        END
        } >nginx.conf
        ./usr/sbin/nginx -e "$1/error.log" -c "$1/nginx.conf" >/dev/null 2>start.log </dev/null || {
            cat start.log error.log >&2
            exit 1
        }
        """

    /// Stops nginx, and ends once it has ended.
    private static let stop = """
        pid=$(cat "$1/nginx.pid") || exit 0
        kill "$pid"
        while kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
        """
}
