import StageModel
import Testing

/// Text that Swift takes long to compare: it is refused before anything compares it.
@Suite struct CombiningSequenceTests {
    private static let start =
        #"{"manifestVersion": 1, "application": "a", "revision": 0, "packs": []"#
    private static let fault = "expected at most 30 combining characters in a row, found more"

    private func read(_ rest: String) -> String? {
        do throws(ManifestError) {
            _ = try Manifest(json: Array((Self.start + rest).utf8))
            return nil
        } catch {
            return error.description
        }
    }

    /// Characters with different classes, as bytes and as escapes, some outside of the basic plane.
    @Test(arguments: [
        "\u{301}", "\u{316}", "\u{345}", "\u{1D165}", #"\u0301"#, #"\u0f71"#,
        #"\uD834\uDD65"#,
    ])
    func aSequenceHasALimit(mark: String) {
        for count in [30, 31, 300_000] {
            let marks = String(repeating: mark, count: count)
            let fault = count == 30 ? nil : Self.fault
            for rest in [#", "x": "a\#(marks)"}"#, #", "a\#(marks)": 1}"#] {
                let found = read(rest)
                #expect((found == nil) == (fault == nil))
                #expect(found?.hasSuffix(fault ?? "") ?? true)
            }
        }
    }

    @Test(arguments: ["a", "\u{E9}", " ", #"\n"#, #"\u0041"#, "\u{AC00}", "\u{1F600}", #"\""#])
    func anotherCharacterEndsASequence(other: String) {
        let marks = String(repeating: "\u{301}", count: 30)
        #expect(read(#", "x": "\#(marks)\#(other)\#(marks)"}"#) == nil)
        #expect(read(#", "x": "\#(marks)", "\#(marks)": "\#(marks)"}"#) == nil)
    }

    @Test func theOffsetIsThatOfTheFirstCharacterTooMany() {
        let marks = String(repeating: "\u{301}", count: 31)
        #expect(read(",\n \"x\": \"\(marks)\"}") == "not JSON: line 2, column 38: " + Self.fault)
    }

    /// Plain text is skipped in machine words; a sequence may begin at any position in one.
    @Test(arguments: 0..<20) func aSequenceIsFoundWhereverItBegins(offset: Int) {
        for (mark, unit) in [("\u{301}", "["), (#"\u0301"#, "["), ("\u{301}", #"\n"#)] {
            let plain = String(repeating: unit, count: offset)
            let marks = String(repeating: mark, count: 31)
            let text = Array((plain + marks + "plain text after it").utf8)
            let last = plain.utf8.count + 30 * mark.utf8.count
            #expect(CombiningSequence.excess(inJSON: text.span) == last)
            let both = Array((plain + mark + plain + mark).utf8)
            #expect(
                CombiningSequence.excess(inJSON: both.span, limit: 1)
                    == (offset == 0 ? mark.utf8.count : nil)
            )
        }
    }

    @Test func aNumberAfterAnEscapedBackslashIsText() {
        let text = Array((#"\\"# + String(repeating: #"\\u0301"#, count: 40)).utf8)
        #expect(CombiningSequence.excess(inJSON: text.span) == nil)
    }

    @Test(arguments: [
        [0x5C], [0x5C, 0xC3], [0x5C, 0x75], [0x5C, 0x75, 0x30, 0x33, 0x30], [0xC3], [0xE0, 0xA4],
        [0xF0],
        [0x80], [0xFF, 0xFF], [0xED, 0xA0, 0xBD], [0x5C, 0x75, 0x44, 0x38, 0x33, 0x34, 0x5C],
    ])
    func bytesThatAreNoCharactersAreLeftToTheParser(bytes: [UInt8]) {
        #expect(CombiningSequence.excess(inJSON: bytes.span) == nil)
        #expect(CombiningSequence.excess(inJSON: (bytes + bytes).span) == nil)
    }

    @Test(arguments: ["", "cafe\u{301}", "👨‍👩‍👧‍👦"])
    func textHasTheSameLimit(text: String) {
        #expect(!CombiningSequence.exceedsLimit(in: text))
        let marks = String(repeating: "\u{316}", count: 31)
        #expect(CombiningSequence.exceedsLimit(in: text + marks))
    }

    /// One character may consist of any number of scalars.
    @Test func displayedTextIsLimitedForAnyCharacters() {
        let family = "👨‍👩‍👧‍👦"
        let character = "a" + String(repeating: "\u{301}", count: 100_000)
        #expect(character.forDisplay(atMost: 60).utf8.count < 1_000)
        #expect("a\(character)".forDisplay(atMost: 1) == "a…")
        #expect(family.forDisplay(atMost: 1) == family)
        #expect(String(repeating: family, count: 60).forDisplay(atMost: 60).count == 60)
        #expect("abc".forDisplay(atMost: 2) == "ab…")
        #expect("abc".forDisplay(atMost: .max) == "abc")
        #expect("".forDisplay(atMost: 0) == "")
    }

    @Test(arguments: [30, 31, 1500]) func displayedTextHasFewCombiningCharactersInARow(count: Int) {
        let (marks, few) = (String(repeating: "\u{316}", count: count), "\u{316}".repeated(30))
        let rest = count > 30 ? "…" : ""
        #expect("a\(marks)b\(marks)".forDisplay() == "a\(few)\(rest)b\(few)\(rest)")
        #expect("a\(marks)".forDisplay(atMost: 60) == "a\(few)\(rest)")
    }

    /// Readers of records and messages accept all text that writers produce, with or without escapes.
    @Test(arguments: ["\u{301}", "\u{1D165}", #"\u0301"#, #"\uD834\uDD65"#])
    func aRecordIsCutWhereAReaderWouldRefuseIt(mark: String) {
        let limit = CombiningSequence.quotationLimit
        for count in [0, 1, limit, limit + 1, 3 * limit] {
            let text = { (count: Int) -> [UInt8] in
                let marks = mark.repeated(count)
                return Array(#"{"x\#(marks)": ["\n\#(marks)\\\#(marks)é", "\#(marks)"]}"#.utf8)
            }
            let written = CombiningSequence.shortened(inJSON: text(count))
            #expect(written == text(min(count, limit)))
            #expect(CombiningSequence.excess(inJSON: written.span, limit: limit) == nil)
        }
    }
}

extension String {
    fileprivate func repeated(_ count: Int) -> String { String(repeating: self, count: count) }
}
