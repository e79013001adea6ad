import StageSystem
package import SystemPackage
import Testing

/// A TLS server in front of a test's HTTP server, with a certificate of its own authority.
package final class TLSFront: Sendable {
    /// The file with the certificate of the authority, which clients must trust.
    package let certificate: FilePath
    /// The URL of the server, without a slash at its end.
    package let baseURL: String
    /// The port that the server listens on.
    package let port: Int
    private let process: StartedProcess

    /// Starts the server in front of the one at `port`, with its files below `directory`; it ends when the last reference is
    /// released.
    ///
    /// `names` are those in the server's certificate (`subjectAltName` of x509v3_config(5)).
    package init(
        port: Int,
        below directory: FilePath,
        names: String = "IP:127.0.0.1"
    ) async throws {
        certificate = directory.appending("front.pem")
        let number = directory.appending("front.port")
        process = try StartedProcess(
            [
                "/bin/sh", "-c", Self.script, "sh", certificate.string, number.string, "\(port)",
                names,
            ],
            log: directory.appending("front.log")
        )
        try await poll("no TLS server: \((try? text(of: directory.appending("front.log"))) ?? "")")
        {
            (try? text(of: number))?.hasSuffix("\n") == true
        }
        self.port = try #require(Int(try text(of: number).dropLast()))
        baseURL = "https://127.0.0.1:\(self.port)"
    }

    /// Creates the certificates, and forwards each connection's bytes in both directions.
    private static let script = #"""
        set -e
        make_request() {
            openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "$@" 2>/dev/null
        }
        make_request -x509 -days 3650 -subj "/CN=Test authority" -keyout "$1.authority" -out "$1"
        make_request -subj "/CN=Test server" -keyout "$1.key" -out "$1.request"
        printf 'subjectAltName=%s\nbasicConstraints=CA:FALSE\n' "$4" >"$1.extensions"
        openssl x509 -req -in "$1.request" -CA "$1" -CAkey "$1.authority" -set_serial 2 -days 3650 \
            -extfile "$1.extensions" -out "$1.server" 2>/dev/null
        exec python3 - "$@" <<'END'
        import socket, ssl, sys, threading
        certificate, number, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate + ".server", certificate + ".key")
        listener = socket.create_server(("127.0.0.1", 0))
        with open(number, "w") as file:
            file.write("%d\n" % listener.getsockname()[1])
        def pass_on(source, target):
            try:
                while data := source.recv(65536):
                    target.sendall(data)
            except OSError:
                pass
            for end in (source, target):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        def serve(connection):
            try:
                client = context.wrap_socket(connection, server_side=True)
                server = socket.create_connection(("127.0.0.1", port))
            except OSError:
                return
            threading.Thread(target=pass_on, args=(client, server), daemon=True).start()
            pass_on(server, client)
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
        END
        """#
}
