import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Transfers over TLS, from nginx with certificates of the test's authority.
@Suite(.directory, .debianPackages)
struct TLSTests {
    /// A certificate of the server, and the program's message about it; `nil` if it accepts the certificate.
    enum Certificate: String, CaseIterable {
        case good
        case expired
        case otherHost
        /// Valid, but signed by an authority that the program does not know.
        case unknownAuthority

        /// The arguments of openssl(1) for the dates and the name of the certificate.
        fileprivate var options: (start: String, end: String, name: String) {
            switch self {
            case .good, .unknownAuthority: ("20200101000000Z", "20990101000000Z", "IP:127.0.0.1")
            case .expired: ("20200101000000Z", "20210101000000Z", "IP:127.0.0.1")
            case .otherHost: ("20200101000000Z", "20990101000000Z", "DNS:example.org")
            }
        }

        fileprivate var words: [String] {
            switch self {
            case .good: []
            case .expired: ["expired", "hint: check this machine's clock with 'date'"]
            case .otherHost:
                ["is for another host", "hint: tell the publisher: the address or the server must"]
            case .unknownAuthority:
                [
                    "is not signed by an authority that this machine trusts",
                    "hint: if the server has an authority of its own, pass it with --cacert",
                ]
            }
        }
    }

    /// Makes an authority and a certificate of it, in the directory.
    private static let certify = """
        set -e
        cd "$1"
        openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 36500 \\
            -subj '/CN=test authority' 2>/dev/null
        openssl req -newkey rsa:2048 -nodes -keyout server.key -out server.csr \\
            -subj '/CN=test server' 2>/dev/null
        mkdir -p issued
        : >index.txt
        echo 01 >serial
        cat >ca.conf <<END
        [ca]
        default_ca = authority
        [authority]
        database = index.txt
        serial = serial
        new_certs_dir = issued
        default_md = sha256
        policy = any
        [any]
        commonName = supplied
        [extensions]
        subjectAltName = $4
        END
        openssl ca -config ca.conf -batch -notext -cert ca.pem -keyfile ca.key -in server.csr \\
            -out server.pem -startdate "$2" -enddate "$3" -extensions extensions 2>/dev/null
        """

    private func serve(
        _ certificate: Certificate,
        _ body: (Nginx, FilePath) async throws -> Void
    ) async throws {
        let directory = try TemporaryDirectory.required()
        let options = certificate.options
        let path = directory.path.string
        try await shell(Self.certify, path, options.start, options.end, options.name)
        let served = try directory.makeDirectory("served")
        let pack = try SamplePack.small(.aurora)
        let packs = try served.makeDirectory("packs")
        let name = try #require(FilePath(pack.path).lastComponent)
        try packs.write(pack.archive, to: name, durably: false)
        let manifest = Manifest(
            application: try ApplicationID("net.example.wallpaper"),
            revision: 1,
            packs: [pack.pack]
        )
        try served.write(manifest.json(), to: "manifest.json", durably: false)
        try await Nginx.serving(served.path, below: directory.path, isEncrypted: true) { nginx in
            try await body(nginx, directory.path)
        }
    }

    @Test(arguments: Certificate.allCases)
    func aServerIsBelievedForItsCertificate(_ certificate: Certificate) async throws {
        try await serve(certificate) { nginx, path in
            var arguments = [
                "prefetch", "--quiet", "--attempts", "1",
                "--manifest", "\(nginx.baseURL)manifest.json",
                "--container", path.appending("container").string,
            ]
            if certificate != .unknownAuthority {
                arguments += ["--cacert", path.appending("ca.pem").string]
            }
            let ending = try await Program().run(arguments)
            let container = try ContainerReader.open(path.appending("container"))
            let staged = try container?.stagedPacks() ?? []
            if certificate == .good {
                #expect(ending == Program.Ending(status: 0, output: "", error: ""))
                #expect(staged == [try .aurora])
            } else {
                #expect(ending.status == 10)
                for word in certificate.words { #expect(ending.error.contains(word)) }
                #expect(staged == [])
            }
        }
    }

    @Test func encryptionIsNotGivenUpOnTheWay() async throws {
        try await serve(.good) { nginx, path in
            let ending = try await Program().run([
                "prefetch", "--quiet", "--attempts", "1",
                "--manifest", "\(nginx.baseURL)to-plain/manifest.json",
                "--container", path.appending("container").string,
                "--cacert", path.appending("ca.pem").string,
            ])
            #expect(ending.status == 10)
            #expect(ending.error.contains("'http://127.0.0.1"))
        }
    }
}
