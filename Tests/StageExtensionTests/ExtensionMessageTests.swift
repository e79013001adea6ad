import StageExtension
import StageModel
import StageTesting
import SystemPackage
import Testing

/// Messages on standard input and output, as values and as text.
@Suite(.directory) struct ExtensionMessageTests {
    private static let file: ExtensionDownload = {
        var file = ExtensionURLDownload(
            identifier: "news \u{1F30D}",
            url: "https://cdn.example.com/news.json?a=b",
            fileSize: 4096,
            applicationGroup: Bench.group
        )
        file.isEssential = true
        file.priority = -5
        file.headers = ["Authorization": "Bearer \"x\"", "X": ""]
        return .url(file)
    }()
    private static let pack = ExtensionDownload.pack(
        PackID(unchecked: "dawn"),
        essential: true,
        priority: 7
    )

    private func messages() throws -> [ExtensionMessage] {
        var request = try Bench(.update).request
        request.restrictedDownloadSizeRemaining = 0
        request.restrictedEssentialDownloadSizeRemaining = 12
        request.packs[1].stagedVersion = 2
        var short = request
        short.packs = []
        return [
            .downloads(request),
            .finished(short, Self.file, file: "/run/stagepack/news.json"),
            .failed(short, Self.pack, ExtensionFailure(code: 202, message: "not\nallowed")),
            .challenge(short, Self.file, ExtensionChallenge(method: "basic", host: "a")),
            .challenge(short, Self.pack, ExtensionChallenge(method: "x", host: "a", realm: "r")),
        ]
    }

    @Test func messagesAreReadAsTheyWereWritten() throws {
        for message in try messages() {
            #expect(try ExtensionMessage(json: message.json()) == message)
        }
    }

    @Test func answersAreReadAsTheyWereWritten() throws {
        let messages = try messages()
        let absent = ExtensionDownload.pack(
            PackID(unchecked: "x"),
            essential: nil,
            priority: nil
        )
        let answers: [(ExtensionAnswer, ExtensionMessage)] = [
            (.downloads([]), messages[0]),
            (.downloads([Self.pack, Self.file, absent]), messages[2]),
            (.nothing, messages[1]),
            (.challenge(.performDefaultHandling), messages[3]),
            (.challenge(.cancelAuthenticationChallenge), messages[3]),
            (.challenge(.rejectProtectionSpace), messages[3]),
            (.challenge(.useCredential(user: "a", password: "b")), messages[3]),
        ]
        for (answer, message) in answers {
            #expect(try ExtensionAnswer(json: answer.json(), to: message) == answer)
        }
    }

    /// An answer of the maximum size, whose headers were looked up among all others before.
    @Test(.timeLimit(.minutes(1))) func manyHeadersAreReadInLinearTime() throws {
        var file = ExtensionURLDownload(
            identifier: "news",
            url: "https://cdn.example.com/news.json",
            fileSize: 1,
            applicationGroup: Bench.group
        )
        for number in 0..<90_000 { file.headers[String(number, radix: 36)] = "" }
        let answer = ExtensionAnswer.downloads([.url(file)])
        let json = answer.json()
        #expect(json.count > 800_000)
        let message = try messages()[0]
        let found = try ExtensionAnswer(json: json, to: message)
        #expect(found == answer)
    }

    @Test func aMessageCutShortIsNeverOne() throws {
        for message in try messages() {
            let json = message.json().dropLast()
            for end in 0..<json.count {
                #expect(throws: ManifestError.self) {
                    try ExtensionMessage(json: Array(json[..<end]))
                }
            }
        }
    }

    @Test func anAnswerCutShortIsNeverOne() throws {
        let message = try messages()[0]
        let json = ExtensionAnswer.downloads([Self.pack, Self.file]).json().dropLast()
        for end in 0..<json.count {
            #expect(throws: ManifestError.self) {
                try ExtensionAnswer(json: Array(json[..<end]), to: message)
            }
        }
    }

    @Test func unknownMembersAreIgnored() throws {
        let message = try messages()[0]
        let answer = #"{"downloads":[{"pack":"dawn","colour":1}],"mood":{"good":[true]}}"#
        #expect(
            try ExtensionAnswer(json: Array(answer.utf8), to: message)
                == .downloads([.pack(PackID(unchecked: "dawn"), essential: nil, priority: nil)])
        )
    }

    /// An invalid response, and the error that names the member.
    @Test(arguments: [
        ("", "not JSON"), ("{}{}", "not JSON"),
        ("[]", "the document: expected an object, found an array"),
        ("{}", "downloads: expected an array of downloads, found nothing"),
        (#"{"downloads":{}}"#, "downloads: expected an array of downloads, found an object"),
        (#"{"protocol":2,"downloads":[]}"#, "format version 2, expected 1"),
        (#"{"protocol":"1","downloads":[]}"#, "protocol: expected a whole number"),
        (#"{"downloads":[],"downloads":[]}"#, "expected members of different names"),
        (#"{"downloads":["dawn"]}"#, "downloads[0]: expected an object, found a string"),
        (#"{"downloads":[{}]}"#, "downloads[0]: expected a member 'pack' or a member 'url'"),
        (#"{"downloads":[{"pack":"a","url":"b"}]}"#, "downloads[0]: expected a member 'pack' or"),
        (#"{"downloads":[{"pack":"../a"}]}"#, "downloads[0].pack: expected 1 to 128 ASCII"),
        (#"{"downloads":[{"pack":"a","essential":1}]}"#, "downloads[0].essential: expected a bool"),
        (#"{"downloads":[{"pack":"a","priority":0.5}]}"#, "downloads[0].priority: expected a wh"),
        (#"{"downloads":[{"url":"https://a/b"}]}"#, "downloads[0].identifier: expected a string"),
        (
            #"{"downloads":[{"identifier":"","url":"https://a/b"}]}"#,
            "downloads[0].identifier: expected an identifier"
        ),
        (
            #"{"downloads":[{"identifier":"a","url":"b"}]}"#,
            "downloads[0].url: expected an absolute"
        ),
        (
            #"{"downloads":[{"identifier":"a","url":"https://a/b","fileSize":"1"}]}"#,
            "downloads[0].fileSize: expected a whole number, found a string"
        ),
        (
            #"{"downloads":[{"identifier":"a","url":"https://a/b","fileSize":1,"#
                + #""applicationGroup":"a","headers":{"X":1}}]}"#,
            "downloads[0].headers.X: expected a string, found 1"
        ),
        (
            #"{"downloads":[{"identifier":"a","url":"https://a/b","fileSize":1}]}"#,
            "downloads[0].applicationGroup: expected a string, found nothing"
        ),
    ]) func anAnswerThatIsNoneNamesTheMember(_ text: String, _ expected: String) throws {
        let message = try messages()[0]
        do throws(ManifestError) {
            _ = try ExtensionAnswer(json: Array(text.utf8), to: message)
            Issue.record("it was taken")
        } catch {
            #expect("\(error)".contains(expected))
        }
    }

    @Test func aMessageOfAnotherProtocolIsNotRead() throws {
        let text = String(decoding: try messages()[1].json(), as: UTF8.self)
            .replacing(#""protocol":1"#, with: #""protocol":2"#)
        #expect(throws: ManifestError.unknownVersion(found: 2, known: 1)) {
            try ExtensionMessage(json: Array(text.utf8))
        }
    }
}
