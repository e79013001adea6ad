import SystemPackage

/// Creates a key and a self-signed certificate, in one file of a directory, and returns the file's path.
///
/// The certificate is for one name: `DNS:` and a host's, or `IP:` and an address, as x509v3_config(5) describes it.
func makeCertificate(for name: String, in directory: FilePath) async throws -> String {
    let pem = directory.appending("server.pem").string
    try await shell(
        """
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \\
            -keyout "$1.key" -out "$1" -days 3650 -subj "/CN=${2#*:}" \\
            -addext "subjectAltName=$2" 2>/dev/null
        cat "$1.key" >>"$1"
        """,
        pem,
        name
    )
    return pem
}
