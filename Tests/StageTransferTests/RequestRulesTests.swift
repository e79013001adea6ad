import Testing

@testable import StageTransfer

struct RequestRulesTests {
    /// In Swift, a colon and a combining character after it are one character; libcurl ends the name at the colon.
    @Test(arguments: [
        "Content-Length: 5", "content-length", "Content-Length;", "CONTENT-LENGTH:a:b;c",
        "Content-Length:\u{301}5", "Content-Length;\u{301}",
    ])
    func theNameOfAFieldEndsAtADelimiter(field: String) {
        #expect(RequestRules.name(of: field) == "content-length")
    }
}
