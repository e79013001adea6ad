import StageModel
import Testing

@Suite struct DigestTests {
    @Test func hexadecimalDigitsOfEitherCaseAreRead() throws {
        let text = "BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        let digest = try Digest(hexadecimal: text)
        #expect(digest.description == text.lowercased())
        #expect(digest == Digest(bytes: digest.bytes))
    }

    @Test(arguments: [
        "", "abc", String(repeating: "g", count: 64), String(repeating: "a", count: 65),
    ])
    func anythingElseIsRefused(text: String) {
        let error = #expect(throws: ValueError.self) { try Digest(hexadecimal: text) }
        #expect(error?.expected == "64 hexadecimal digits")
    }
}
