import StageModel
import StageTrust
import Testing

@Suite struct CanonicalJSONTests {
    static func canonical(_ json: String) throws -> String {
        let bytes = try CanonicalJSON.bytes(of: JSONNode(json: Array(json.utf8)))
        return String(decoding: bytes, as: UTF8.self)
    }

    @Test(arguments: [
        ("{}", "{}"), ("[]", "[]"), ("[ ]", "[]"), ("null", "null"), ("true", "true"),
        ("false", "false"), ("\"\"", "\"\""), ("-0", "0"), ("-12", "-12"),
        ("9223372036854775807", "9223372036854775807"),
        ("[1, 2 ,\n3 ]", "[1,2,3]"),
        (
            #"{"b":{"d":[],"c":null},"a":[true,{"":0}]}"#,
            #"{"a":[true,{"":0}],"b":{"c":null,"d":[]}}"#
        ),
        // Only the quotation mark and the backslash are escaped.
        (#""\"\\\/\b\f\n\r\t\u0000\u001f\u007f""#, "\"\\\"\\\\/\u{8}\u{C}\n\r\t\0\u{1F}\u{7F}\""),
        (#""\u00e9\ud83d\ude00""#, "\"é😀\""),
        // Names are ordered by code points, not as text: é is a single code point here.
        (#"{"f":1,"é":2,"Z":3,"a":4}"#, #"{"Z":3,"a":4,"f":1,"é":2}"#),
        (#"{"\ue000":1,"😀":2,"z":3}"#, "{\"z\":3,\"\u{E000}\":1,\"😀\":2}"),
        // Text is not normalized, neither for the order nor in the result.
        (#"{"f":1,"e\u0301":2}"#, "{\"e\u{301}\":2,\"f\":1}"),
        (#""e\u0301""#, "\"e\u{301}\""),
        (#"{"aa":1,"a":2,"a\u0000":3,"A":4}"#, "{\"A\":4,\"a\":2,\"a\0\":3,\"aa\":1}"),
    ])
    func eachValueHasOneForm(json: String, canonical: String) throws {
        #expect(try Array(Self.canonical(json).utf8) == Array(canonical.utf8))
    }

    @Test(arguments: [
        ("1.5", "the document", "1.5"),
        (#"{"a":[0,{"b":1e-3}]}"#, "a[1].b", "0.001"),
        ("[9223372036854775808]", "[0]", "9.223372036854776e+18"),
    ])
    func otherNumbersHaveNone(json: String, member: String, found: String) {
        let expected = "an integer of 64 bits, as signed data has no other numbers"
        let error = ManifestError.invalid(
            member: member,
            ValueError(expected: expected, found: found)
        )
        #expect(throws: error) { try Self.canonical(json) }
    }
}
