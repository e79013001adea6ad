import StageDigest
import StageSystem
import StageTesting
import SystemPackage
import Testing
import TokenProvider

/// Keys of a provider that simulates a token: `Tests/TokenProvider` describes it.
@Suite(.serialized, .directory)
struct TokenTests {
    private let directory: Directory

    /// Indicates whether the simulated provider is registered, which is possible once in a process.
    private static let isRegistered: Bool = {
        guard let context = unsafe LibraryContext.forTokens else { return false }
        return unsafe stage_token_register(context) == 1
    }()

    init() throws {
        directory = try TemporaryDirectory.required()
    }

    private func write(
        _ scheme: SignatureScheme,
        _ name: FilePath.Component
    ) throws -> (uri: String, publicKey: String) {
        let key = try PrivateKey(generating: scheme, rsaBits: 2048)
        let pem = Array(try key.unencryptedPEM().utf8)
        try directory.write(pem, to: name, durably: false, exactly: .privateFile)
        let uri = PrivateKey.tokenScheme + directory.path.appending(name).string
        return (uri, try key.publicKey().text)
    }

    private func error(_ uri: String, pin: String?) -> KeyError? {
        do throws(KeyError) {
            _ = try PrivateKey(tokenURI: uri, fetching: nil) { pin.map { Array($0.utf8) } }
            return nil
        } catch {
            return error
        }
    }

    /// Without registration there is no provider, as on most machines: this test runs first.
    @Test func aKeyIsNamedByAURIWithoutItsPIN() {
        for uri in [
            "pkcs11:object=a?pin-value=1234", "PKCS11:object=a", "file:/tmp/a", "pkcs11:a\0b",
        ] {
            guard case .tokenURI = error(uri, pin: "1234") else {
                Issue.record("\(uri) was accepted")
                continue
            }
        }
    }

    @Test(arguments: SignatureScheme.allCases)
    func aKeySignsAfterItsPIN(scheme: SignatureScheme) throws {
        #expect(Self.isRegistered)
        let (uri, text) = try write(scheme, "key.pem")
        var questions = 0
        let key = try PrivateKey(tokenURI: uri, fetching: nil) {
            questions += 1
            return Array("1234".utf8)
        }
        #expect(questions == 1)
        #expect(key.scheme == scheme)
        let publicKey = try key.publicKey()
        #expect(publicKey.text == text)
        let signature = try key.signature(of: [1, 2, 3])
        let ofFile = try PublicKey(text, scheme: scheme)
        #expect(ofFile.verifies(signature: signature, of: [1, 2, 3]) == true)
        #expect(publicKey.verifies(signature: signature, of: [1, 2]) == false)
    }

    /// OpenSSL first treats a URI without slashes as the path of a file.
    @Test func aFileWhoseNameIsTheURIIsNotTakenForTheToken() throws {
        #expect(Self.isRegistered)
        let uri = "pkcs11:token=\(UInt64.random(in: 0 ... .max))"
        let key = try PrivateKey(generating: .ed25519)
        let here = try Directory.open(".")
        let name = try #require(FilePath.Component(uri))
        try here.write(
            Array(try key.unencryptedPEM().utf8),
            to: name,
            durably: false,
            exactly: .privateFile
        )
        defer { _ = try? here.remove(name) }
        #expect(error(uri, pin: "1234") == nil)
        var questions = 0
        do throws(KeyError) {
            _ = try PrivateKey(tokenURI: uri) {
                questions += 1
                return Array("1234".utf8)
            }
            Issue.record("the file was taken for the token")
        } catch {
            guard case .token = error else { throw error }
        }
        #expect(questions == 1)
    }

    @Test func tokenErrorsNameTheirReason() throws {
        #expect(Self.isRegistered)
        let (uri, _) = try write(.ed25519, "key.pem")
        let (other, _) = try write(.ecdsaP256, "other.pem")
        #expect(error(uri, pin: nil) == .locked)
        #expect(error(uri, pin: String(repeating: "1", count: 5000)) == .locked)
        #expect(
            error(uri, pin: "4321") == .token(reason: "the PIN is wrong, or no key fits the URI")
        )
        let both = uri + ";" + other.dropFirst(PrivateKey.tokenScheme.count)
        #expect(error(both, pin: "1234") == .ambiguousToken(count: 2))
        #expect(error("pkcs11:", pin: "1234") == .token(reason: "no key fits the URI"))
        #expect(error(uri, pin: "1234") == nil)
    }
}
