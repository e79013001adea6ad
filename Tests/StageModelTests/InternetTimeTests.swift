import FoundationEssentials
import Testing

@testable import StageModel

@Suite struct InternetTimeTests {
    @Test(
        arguments: [
            ("1970-01-01T00:00:00Z", 0, 0), ("1970-01-01t00:00:00z", 0, 0),
            ("1969-12-31T23:59:59Z", -1, 0), ("1969-12-31T23:59:59.999Z", -1, 999_000_000),
            ("2000-02-29T12:00:00Z", 951_825_600, 0), ("2024-02-29T23:59:59Z", 1_709_251_199, 0),
            ("2100-03-01T00:00:00Z", 4_107_542_400, 0),
            ("0000-01-01T00:00:00Z", -62_167_219_200, 0),
            ("0000-02-29T00:00:00Z", -62_162_121_600, 0),
            ("9999-12-31T23:59:59Z", 253_402_300_799, 0),
            ("2026-01-01T01:30:00+01:30", 1_767_225_600, 0),
            ("2025-12-31T19:00:00-05:00", 1_767_225_600, 0),
            ("2026-01-01T00:00:00-00:00", 1_767_225_600, 0),
            ("2026-01-01T23:59:00+23:59", 1_767_225_600, 0),
            ("2016-12-31T23:59:60Z", 1_483_228_800, 0),
            ("2017-01-01T00:59:60.5+01:00", 1_483_228_800, 500_000_000),
            ("2026-01-01T00:00:00.1Z", 1_767_225_600, 100_000_000),
            ("2026-01-01T00:00:00.0000000019Z", 1_767_225_600, 1),
            ("2026-01-01T00:00:00.123456789123456789123456789Z", 1_767_225_600, 123_456_789),
        ] as [(String, Int64, Int)]
    )
    func datesOfTheFormatAreRead(text: String, seconds: Int64, nanoseconds: Int) throws {
        let time = try InternetTime(text)
        #expect(time == InternetTime(secondsSince1970: seconds, nanoseconds: nanoseconds))
    }

    @Test(arguments: [
        "", "2026", "2026-01-01", "2026-01-01T00:00Z", "2026-01-01T00:00:00",
        "2026-01-01 00:00:00Z", "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00,5Z",
        "2026-01-01T00:00:00+0100", "2026-01-01T00:00:00+01", "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00:00+01:60", "2026-01-01T00:00:00ZZ", "2026-01-01T00:00:00Z ",
        " 2026-01-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-13-01T00:00:00Z",
        "2026-01-00T00:00:00Z", "2026-01-32T00:00:00Z", "2026-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2026-04-31T00:00:00Z",
        "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-01-01T00:00:61Z",
        "2026-01-01T00:00:60Z", "2026-01-01T23:59:60+01:00", "10000-01-01T00:00:00Z",
        "-001-01-01T00:00:00Z", "+026-01-01T00:00:00Z", "2026-1-01T00:00:00Z",
        "2026-01-01T00:00:00\u{2212}01:00", "२०२६-01-01T00:00:00Z", "Thu, 01 Jan 1970 00:00:00 GMT",
    ])
    func otherTextIsNoDate(text: String) {
        #expect(
            throws: ValueError(expected: "a time such as '2030-12-31T23:59:59Z'", text: text)
        ) { try InternetTime(text) }
    }

    @Test func everyPrefixOfADateIsNoDate() {
        let text = "2026-01-01T00:00:00.125+01:00"
        for length in 0..<text.count {
            #expect(throws: ValueError.self) { try InternetTime(String(text.prefix(length))) }
        }
    }

    @Test(
        arguments: [
            (0, "1970-01-01T00:00:00.000Z"), (-0.001, "1969-12-31T23:59:59.999Z"),
            (1_767_225_600.125, "2026-01-01T00:00:00.125Z"),
            (0.0006, "1970-01-01T00:00:00.001Z"), (.infinity, "9999-12-31T23:59:59.000Z"),
            (-.infinity, "0000-01-01T00:00:00.000Z"), (.nan, "1970-01-01T00:00:00.000Z"),
            (253_402_300_800, "9999-12-31T23:59:59.000Z"), (1e300, "9999-12-31T23:59:59.000Z"),
        ] as [(Double, String)]
    )
    func aDateIsWrittenToTheMillisecond(seconds: Double, text: String) throws {
        let time = InternetTime(Date(timeIntervalSince1970: seconds))
        #expect(time.textWithMilliseconds == text)
        #expect(try InternetTime(text) == time)
        #expect(InternetTime(time.date) == time)
    }

    @Test func daysOfFourCenturiesComeBack() throws {
        for day in stride(from: Int64(-36_524), to: 146_097, by: 11) {
            let time = InternetTime(secondsSince1970: day * 86400 + 3661)
            #expect(try InternetTime(time.description) == time)
        }
    }

    @Test func pointsInTimeAreOrdered() {
        let times = [(-1, 999), (0, 0), (0, 1), (1, 0)].map {
            InternetTime(secondsSince1970: $0, nanoseconds: $1)
        }
        #expect(times.reversed().sorted() == times)
    }
}
