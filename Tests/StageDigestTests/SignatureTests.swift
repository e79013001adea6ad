import Glibc
import StageDigest
import SystemPackage
import Testing

@Suite struct SignatureTests {
    static let message = Array("metadata".utf8)

    @Test(arguments: SignatureScheme.allCases)
    func aKeyVerifiesItsSignaturesOnly(scheme: SignatureScheme) throws {
        let key = try PrivateKey(generating: scheme, rsaBits: 2048)
        let signature = try key.signature(of: Self.message)
        let publicKey = try key.publicKey()
        #expect(publicKey.verifies(signature: signature, of: Self.message) == true)
        #expect(publicKey.verifies(signature: signature, of: Self.message + [0]) == false)
        #expect(publicKey.verifies(signature: signature, of: []) == false)
        for index in signature.indices {
            var changed = signature
            changed[index] ^= 0x10
            #expect(publicKey.verifies(signature: changed, of: Self.message) == false)
            #expect(
                publicKey.verifies(signature: Array(signature[..<index]), of: Self.message) == false
            )
        }
        let other = try PrivateKey(generating: scheme, rsaBits: 2048)
        #expect(try other.publicKey().verifies(signature: signature, of: Self.message) == false)
    }

    @Test(arguments: SignatureScheme.allCases)
    func aPublicKeyComesBackFromItsText(scheme: SignatureScheme) throws {
        let key = try PrivateKey(generating: scheme, rsaBits: 2048)
        let publicKey = try key.publicKey()
        let read = try PublicKey(publicKey.text, scheme: scheme)
        #expect(read.text == publicKey.text)
        #expect(read.encoded == publicKey.encoded)
        #expect(read.verifies(signature: try key.signature(of: [1]), of: [1]) == true)
    }

    /// Test 2 of RFC 8032, section 7.1.
    @Test func ed25519FollowsTheStandard() throws {
        let key = try PublicKey(
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            scheme: .ed25519
        )
        let hexadecimal =
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            + "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        let signature = try #require([UInt8](hexadecimal: hexadecimal))
        #expect(key.verifies(signature: signature, of: [0x72]) == true)
        #expect(key.verifies(signature: signature, of: [0x73]) == false)
    }

    /// The same test with its private key, in the encoding of RFC 8410, section 7.
    @Test func aPrivateKeyOfTheStandardSignsLikeIt() throws {
        let pem = """
            -----BEGIN PRIVATE KEY-----
            MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7
            -----END PRIVATE KEY-----
            """
        let key = try PrivateKey(pem: pem) {
            Issue.record("a key that is not encrypted needs no passphrase")
            return nil
        }
        let text = try key.publicKey().text
        let signature = try key.signature(of: [0x72]).hexadecimal
        #expect(signature.hasPrefix("92a009a9f0d4cab8720e820b5f642540"))
        #expect(text == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    }

    static let shortRSA = """
        -----BEGIN PUBLIC KEY-----
        MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCsCAK/xuy+Y00qfJK2ypOYR1uk
        cY9lyZ7FN01rcoaE7uqK5CfI+j3A0qKCwUAPLdpT6VDpwMIQutNDgsfgSOY3s1Vg
        9n2eYbGFz8eMizrC/Wfs3Wk+zEd2RHAvbt1WPMhvLkFa3YwCFP97Es4VZo/4yCjz
        ZsrpH2O+ETWxcSsWrwIDAQAB
        -----END PUBLIC KEY-----
        """
    static let restrictedRSA = """
        -----BEGIN PUBLIC KEY-----
        MIIBIDALBgkqhkiG9w0BAQoDggEPADCCAQoCggEBAKwoUlAmBS7EmNAYX9QMt2s3
        dcpzZcJoBDI5v/mEiUHcn+RiFh4qS7XY3Lkm/75QbjaqQ5hGrok/3BTsdpkqRVY+
        6UZoPQMIqYbJtzLkD8Quw6eVKGZzbofBSfuMEuoqcNUmzw98UlsRuD6ksno1gj3B
        s2KEtw7apTfQShhAg+yAFawKBuvWZPnc9c0fvgJSMWrEZAihwVqLYi06G+k0ozo4
        HUfMAHzwqMApTRpAnZLmQxnxIFeqq0oJPKPa+zjKiv4ninVjaPs6jhUBzhlgdBfI
        nA567JxeQaoITzipIKqqzktZuCRFUdzFfiQvcPRntTHY7Hr+h2ENRwOjh3Ck5YUC
        AwEAAQ==
        -----END PUBLIC KEY-----
        """
    static let otherCurve = """
        -----BEGIN PUBLIC KEY-----
        MFYwEAYHKoZIzj0CAQYFK4EEAAoDQgAENpEke2CPwN8uOUPCd9Yf+EHqHMuu3UrX
        +HLjFtpikMhBvIQ20QTfKINWWgWhxSw0e/DQW0dkUmqDSXRt+whJGA==
        -----END PUBLIC KEY-----
        """
    static let ed25519 = """
        -----BEGIN PUBLIC KEY-----
        MCowBQYDK2VwAyEA2FlXmHo/uKOtjzoZ2rk/waqz+sZJ5Cz+FPCryMN7OSg=
        -----END PUBLIC KEY-----
        """

    @Test(
        arguments: [
            (shortRSA, .rsaPSS, .rsaSize(bits: 1024)),
            (restrictedRSA, .rsaPSS, .wrongType(expected: "an RSA key")),
            (ed25519, .rsaPSS, .wrongType(expected: "an RSA key")),
            (otherCurve, .ecdsaP256, .wrongType(expected: "an ECDSA key on the curve P-256")),
            (shortRSA, .ecdsaP256, .wrongType(expected: "an ECDSA key on the curve P-256")),
            (otherCurve, .ecdsaP384, .wrongType(expected: "an ECDSA key on the curve P-384")),
            ("", .rsaPSS, unreadable), ("abc", .ecdsaP256, unreadable),
            ("-----BEGIN PUBLIC KEY-----", .ecdsaP256, unreadable),
            (shortRSA.replacing("PUBLIC", with: "PRIVATE"), .rsaPSS, unreadable),
            ("a note\n" + otherCurve, .ecdsaP256, unreadable),
            (ed25519, .ed25519, unreadableEd25519), ("00", .ed25519, unreadableEd25519),
            (String(repeating: "g", count: 64), .ed25519, unreadableEd25519),
            (String(repeating: "00", count: 33), .ed25519, unreadableEd25519),
        ] as [(String, SignatureScheme, KeyError)]
    )
    func keysOfOtherKindsAreRefused(text: String, scheme: SignatureScheme, error: KeyError) {
        #expect(throws: error) { _ = try PublicKey(text, scheme: scheme) }
    }

    /// A key on the curve P-256 that is encrypted with the passphrase 'secret' (RFC 1421, section 4.6).
    static let encrypted = """
        -----BEGIN PUBLIC KEY-----
        Proc-Type: 4,ENCRYPTED
        DEK-Info: AES-128-CBC,000102030405060708090A0B0C0D0E0F

        7x2BKY9r0Uwt22boTjtsRgfixYNe1m5h6JMe6dh/6543+FrZQzqzXPIJCwxCUQ7P
        /pAmVJRky89PnNBe4w86O524M7mSBTYaFvZMm8pFIwLIlhiIXnET/thyAHFyQfXO
        -----END PUBLIC KEY-----
        """

    /// A repository's metadata must not make a command wait for a passphrase, nor ask a person for one.
    @Test func noPassphraseIsAskedForAPublicKey() async {
        await #expect(processExitsWith: .success) {
            // Without a terminal, OpenSSL reads passphrases from standard input.
            _ = setsid()
            let (reading, writing) = try FileDescriptor.pipe()
            _ = try writing.writeAll("secret\n".utf8)
            _ = try reading.duplicate(as: .standardInput)
            try writing.close()
            let error = #expect(throws: KeyError.self) {
                _ = try PublicKey(SignatureTests.encrypted, scheme: .ecdsaP256)
            }
            try #require(error == SignatureTests.unreadable)
        }
    }

    /// An X25519 key of zeros, in the encoding of RFC 8410, section 7.
    static let x25519 = "MC4CAQAwBQYDK2VuBCIEIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

    static let unreadable = KeyError.unreadable(
        expected: "a public key in PEM, beginning with '-----BEGIN PUBLIC KEY-----'"
    )
    static let unreadableEd25519 = KeyError.unreadable(
        expected: "64 hexadecimal digits, an Ed25519 key"
    )

    @Test(arguments: SignatureScheme.allCases)
    func aPrivateKeyIsReadWithItsPassphraseOnly(scheme: SignatureScheme) throws {
        let key = try PrivateKey(generating: scheme, rsaBits: 2048)
        let pem = try key.pem(encryptedWith: Array("correct horse".utf8))
        #expect(pem.hasPrefix("-----BEGIN ENCRYPTED PRIVATE KEY-----"))
        let read = try PrivateKey(pem: pem) { Array("correct horse".utf8) }
        #expect(read.scheme == scheme)
        #expect(try read.publicKey().text == key.publicKey().text)
        for wrong in [nil, [], Array("correct".utf8), [UInt8](repeating: 7, count: 5000)] {
            #expect(throws: KeyError.locked) {
                _ = try PrivateKey(pem: pem) { wrong }
            }
        }
    }

    @Test func privateKeysOfOtherKindsAreRefused() throws {
        let pem = "-----BEGIN PRIVATE KEY-----\n\(Self.x25519)\n-----END PRIVATE KEY-----\n"
        let expected = "an Ed25519, ECDSA P-256, ECDSA P-384 or RSA key"
        #expect(throws: KeyError.wrongType(expected: expected)) {
            _ = try PrivateKey(pem: pem) { nil }
        }
        #expect(throws: KeyError.unreadable(expected: "a private key in PEM (PKCS #8)")) {
            _ = try PrivateKey(pem: pem.replacing("MC4C", with: "MC4D")) { nil }
        }
        #expect(throws: KeyError.self) { _ = try PrivateKey(pem: Self.ed25519) { nil } }
        #expect(throws: KeyError.failed) {
            _ = try PrivateKey(generating: .ed25519).pem(encryptedWith: [])
        }
        #expect(throws: KeyError.rsaSize(bits: 1024)) {
            _ = try PrivateKey(generating: .rsaPSS, rsaBits: 1024)
        }
    }

    @Test(arguments: [
        (HashFunction.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            .sha512,
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
                + "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"
        ),
    ])
    func digestsFollowTheStandard(function: HashFunction, hexadecimal: String) throws {
        let digest = ContentDigest(of: Array("abc".utf8), using: function)
        #expect(digest.hexadecimal == hexadecimal)
        #expect(try ContentDigest(hexadecimal: hexadecimal.uppercased(), of: function) == digest)
    }
}
