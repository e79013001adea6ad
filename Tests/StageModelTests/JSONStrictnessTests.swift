import StageModel
import Testing

/// Texts that decoders interpret differently: a signed manifest must have one meaning.
@Suite struct JSONStrictnessTests {
    private static let start =
        #"{"manifestVersion": 1, "application": "a", "revision": 0, "packs": []"#

    @Test(arguments: [
        (",}", "line 1, column 71: expected a member's name, found '}'"),
        (
            #", "packs": []}"#,
            "line 1, column 72: expected members of different names, found 'packs'"
        ),
        (#", "x": [1,]}"#, "line 1, column 80: expected a value, found ']'"),
        (#", "x": 01}"#, "line 1, column 78: expected ',' or '}', found '1'"),
        (#", "x": +1}"#, "line 1, column 77: expected a value, found '+'"),
        (#", "x": 1.}"#, "line 1, column 79: expected a digit, found '}'"),
        (
            #", "x": 1e999}"#,
            "line 1, column 77: expected a number that a Double holds, found '1e999'"
        ),
        (#", "x": NaN}"#, "line 1, column 77: expected a value, found 'N'"),
        (#", "x": 'a'}"#, "line 1, column 77: expected a value, found '''"),
        (#", "x": "\q"}"#, "line 1, column 79: expected an escape, found 'q'"),
        (#", "x": "\ud800"}"#, "line 1, column 78: expected a pair of surrogates, found one"),
        (#", "x": "\ud800\u0041"}"#, "line 1, column 78: expected a pair of surrogates, found one"),
        (", // note\n}", "line 1, column 72: expected a member's name, found '/'"),
        ("}\n\n x", "line 3, column 2: expected the end, found 'x'"),
        (",\n \"ü\" 1}", "line 2, column 6: expected ':', found '1'"),
        (
            ", \"x\": \"a\nb\"}",
            "line 1, column 79: expected an escape such as '\\n' for a control "
                + "character, found '\\u{a}'"
        ),
        ("", "line 1, column 70: expected ',' or '}', found the end"),
    ])
    func invalidJSONIsRefusedWithItsPosition(rest: String, message: String) {
        let error = #expect(throws: ManifestError.self) {
            try Manifest(json: Array((Self.start + rest).utf8))
        }
        #expect(error?.description == "not JSON: " + message)
    }

    @Test(arguments: [
        "}", "}\r\n\t ", #", "x": "\u00e4\ud83c\udf0c\"\\\/\b\f\n\r\t"}"#, #", "x": -0.5e+10}"#,
        #", "x": [[], {}, [{"y": null}]]}"#, #", "revisions": 1.0}"#,
    ])
    func allValidJSONIsRead(rest: String) throws {
        let manifest = try Manifest(json: Array((Self.start + rest).utf8))
        #expect(manifest.packs == [])
    }

    @Test(arguments: ["?", #"?\n"#, #"\n?"#, #"\u00e4?\u00e4"#, #"a?\"b\\"#])
    func bytesThatAreNotUTF8AreRefusedWhereverTheyAre(string: String) {
        for byte in [0xFF, 0xC3, 0xA4] as [UInt8] {
            let text = Self.start + ", \"x\": \"\(string)\"}"
            let bytes = text.utf8.map { $0 == UInt8(ascii: "?") ? byte : $0 }
            #expect(
                throws: ManifestError.notJSON(
                    "line 1, column 78: expected UTF-8, found other bytes"
                )
            ) { try Manifest(json: bytes) }
        }
    }

    @Test func nestingHasALimitThatNoStackFears() {
        for count in [ManifestLimits.nesting - 1, ManifestLimits.nesting, 1_000_000] {
            let nested =
                String(repeating: "[", count: count) + String(repeating: "]", count: count)
            let text = Self.start + ", \"x\": \(nested)}"
            let isRead = (try? Manifest(json: Array(text.utf8))) != nil
            #expect(isRead == (count < ManifestLimits.nesting))
        }
    }

    @Test func namesBeyondTheFirstFewAreTakenOnceToo() {
        let names = (0..<40).map { "\"m\($0)\": 1" } + ["\"m30\": 2"]
        let text = Self.start + ", " + names.joined(separator: ", ") + "}"
        #expect(throws: ManifestError.self) { try Manifest(json: Array(text.utf8)) }
    }

    @Test func aFlippedByteNeverEndsTheProcess() {
        let text = Array(Sample.manifest.utf8)
        for index in text.indices {
            for bit in 0..<8 {
                var bytes = text
                bytes[index] ^= 1 << UInt8(bit)
                // The changed bytes may still be a manifest.
                _ = try? Manifest(json: bytes)
            }
        }
    }

    @Test(arguments: [
        ("1.0", "1"), ("1e3", "1000"), ("2.50", "2.5"), ("-0", "0"), ("9007199254740993", nil),
        ("12345678901234567890", "1.2345678901234567e+19"), ("[ 1 , 2 ]", "[1,2]"),
        (#"{"b": 1, "a": "\u0001\n"}"#, #"{"a":"\u0001\n","b":1}"#),
    ])
    func userInfoIsKeptAsCompactText(written: String, expected: String?) throws {
        let text = try Sample.manifest.replacing(
            once: #"{"b": [1, 2.5, null], "a": true}"#,
            with: written
        )
        let manifest = try Manifest(json: Array(text.utf8))
        #expect(manifest.packs[0].userInfo == expected ?? written)
        #expect(try Manifest(json: manifest.json()) == manifest)
    }

    /// The content of strings is skipped in machine words; each of these may be at any position in one.
    @Test(arguments: 0..<20) func aCharacterIsReadAtAnyOffsetOfAString(offset: Int) throws {
        let plain = String(repeating: "~", count: offset)
        for character in ["", #"\n"#, #"\""#, #"\\"#, "\u{7F}", "ä", "🌌", "!", "#"] {
            let written = "\"\(plain)\(character)\(plain)\(character)\""
            let text = try Sample.manifest.replacing(
                once: #"{"b": [1, 2.5, null], "a": true}"#,
                with: written
            )
            let manifest = try Manifest(json: Array(text.utf8))
            #expect(manifest.packs[0].userInfo == written)
        }
        for control in ["\u{1}", "\n", "\u{1F}"] {
            let error = #expect(throws: ManifestError.self) {
                try Manifest(json: Array("[\"\(plain)\(control)\"]".utf8))
            }
            let location = "not JSON: line 1, column \(offset + 3): "
            #expect(error?.description.hasPrefix(location) == true)
        }
        let error = #expect(throws: ManifestError.self) {
            try Manifest(json: Array("[\"\(plain)".utf8))
        }
        #expect(
            error?.description
                == "not JSON: line 1, column 2: expected a '\"' that ends the string, found none"
        )
    }
}
