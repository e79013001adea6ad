import StageModel
import StageTrust
import Testing

@Suite struct MetadataTimeTests {
    @Test(
        arguments: [
            ("1970-01-01T00:00:00Z", 0), ("1969-12-31T23:59:59Z", -1),
            ("2000-02-29T12:00:00Z", 951_825_600), ("2026-01-01T00:00:00Z", 1_767_225_600),
            ("2100-03-01T00:00:00Z", 4_107_542_400), ("0000-01-01T00:00:00Z", -62_167_219_200),
            ("9999-12-31T23:59:59Z", 253_402_300_799), ("1985-10-21T01:21:00Z", 498_705_660),
        ] as [(String, Int64)]
    )
    func timesAreReadAndWritten(text: String, seconds: Int64) throws {
        let time = try MetadataTime(text)
        #expect(time.secondsSince1970 == seconds)
        #expect(time.description == text)
    }

    @Test(arguments: [
        "", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01T00:00:00+00:00",
        "2026-01-01T00:00:00.5Z", "2026-01-01 00:00:00Z", "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z", "2026-01-00T00:00:00Z", "2026-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z", "2026-04-31T00:00:00Z", "2026-01-01T24:00:00Z",
        "2026-01-01T00:60:00Z", "2026-01-01T00:00:60Z", "+026-01-01T00:00:00Z",
        "२०२६-01-01T00:00:00Z",
    ])
    func otherTextIsNoTime(text: String) {
        #expect(
            throws: ValueError(expected: "a time such as '2030-12-31T23:59:59Z'", text: text)
        ) { try MetadataTime(text) }
    }

    @Test(arguments: [
        (Int64.max, "292277026596-12-04T15:30:07Z"), (Int64.min, "-292277022657-01-27T08:29:52Z"),
    ])
    func anyReferenceTimeIsWritten(seconds: Int64, text: String) {
        #expect(MetadataTime(secondsSince1970: seconds).description == text)
    }

    @Test func daysOfFourCenturiesComeBack() throws {
        for day in stride(from: Int64(0), to: 146_097, by: 11) {
            let time = MetadataTime(secondsSince1970: day * 86400 + 3661)
            #expect(try MetadataTime(time.description) == time)
        }
    }
}
