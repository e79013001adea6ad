import StageDigest
import StageModel
import Testing

@Suite struct SHA256HasherTests {
    /// The test vectors of FIPS 180-4.
    @Test(arguments: [
        ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
    ])
    func digestsMatchTheStandard(text: String, hexadecimal: String) {
        #expect(Digest(of: Array(text.utf8)).description == hexadecimal)
    }

    @Test func aDigestDoesNotDependOnHowTheBytesArrive() {
        let bytes = (0..<1000).map { UInt8(truncatingIfNeeded: $0 * 7) }
        var hasher = SHA256Hasher()
        for byte in bytes { hasher.update([byte].span) }
        let digest = hasher.finish()
        #expect(digest == Digest(of: bytes))
    }
}
