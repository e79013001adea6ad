import StageExtension
import StageModel
import StageSystem
import SystemPackage
import Testing

/// The examples in `Manifests/downloader-extension.md` equal the encoded messages and responses, byte for byte.
@Suite struct DocumentationTests {
    /// The blocks of JSON, in their order.
    private func examples() throws -> [[UInt8]] {
        let path = Repository.root.appending("Manifests/downloader-extension.md")
        let text = String(
            decoding: try File.open(reading: path).readAll(limit: 1 << 20),
            as: UTF8.self
        )
        return text.split(separator: "```json\n").dropFirst().compactMap { part in
            part.split(separator: "```\n", omittingEmptySubsequences: false).first
                .map { Array($0.utf8) }
        }
    }

    /// The JSON in one line with sorted members, as StagePack encodes it.
    private static func compact(_ json: [UInt8]) throws -> [UInt8] {
        var parser = JSONParser(json)
        return Array((try parser.document().text + "\n").utf8)
    }

    @Test func messagesAreWrittenAsTheyAreDocumented() throws {
        let examples = try examples()
        try #require(examples.count == 7)
        for index in [0, 2, 4, 5] {
            let message = try ExtensionMessage(json: examples[index])
            #expect(try message.json() == Self.compact(examples[index]))
        }
    }

    @Test func answersAreWrittenAsTheyAreDocumented() throws {
        let examples = try examples()
        try #require(examples.count == 7)
        for (question, answer) in [(0, 1), (2, 3), (5, 6)] {
            let message = try ExtensionMessage(json: examples[question])
            let value = try ExtensionAnswer(json: examples[answer], to: message)
            #expect(try value.json() == Self.compact(examples[answer]))
        }
    }

    @Test func theDocumentedAnswerIsOneThatCounts() throws {
        let examples = try examples()
        let message = try ExtensionMessage(json: examples[0])
        let answer = try ExtensionAnswer(json: examples[1], to: message)
        guard case .downloads(let downloads) = answer else {
            Issue.record("it is no list of downloads")
            return
        }
        #expect(try ExtensionRules(message.request).accepted(downloads) == downloads)
    }

    @Test func theAllowedSystemCallsAreThoseOfTheFilter() throws {
        let path = Repository.root.appending("Manifests/downloader-extension.md")
        let text = String(
            decoding: try File.open(reading: path).readAll(limit: 1 << 20),
            as: UTF8.self
        )
        let tables = try CallTables()
        let start = try #require(text.firstRange(of: "```calls\n")).upperBound
        let list = try #require(text[start...].split(separator: "```").first)
        let names = list.split { !$0.isLetter && !$0.isNumber && $0 != "_" }.map(String.init)
        #expect(Set(names) == tables.allowed)
        // Each call must have a row in the tables below the list.
        let rest = text[start...].matches(of: /`([a-z][a-z0-9_]+)`/).map { String($0.1) }
        for name in tables.checked.union(tables.answered) {
            #expect(rest.contains(name), "'\(name)' is not documented")
        }
    }
}
