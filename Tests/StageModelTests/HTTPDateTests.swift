import Testing

@testable import StageModel

@Suite
struct HTTPDateTests {
    /// 2026-11-26 04:00:00.
    private static let now = HTTPDate(seconds: 1_795_665_600)

    private func date(_ text: String) -> HTTPDate? { HTTPDate(text, readAt: Self.now) }

    @Test(arguments: [
        (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
        (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
        (1_772_323_199, "Sat, 28 Feb 2026 23:59:59 GMT"),
        (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        (-1, "Wed, 31 Dec 1969 23:59:59 GMT"),
        (-62_167_219_200, "Sat, 01 Jan 0000 00:00:00 GMT"),
        (253_402_300_799, "Fri, 31 Dec 9999 23:59:59 GMT"),
    ])
    func aDateIsWrittenAndReadBack(seconds: Int64, text: String) {
        #expect(HTTPDate(seconds: seconds).description == text)
        #expect(date(text) == HTTPDate(seconds: seconds))
    }

    /// A leap second counts as the next second, and a two-digit year is at most 50 years in the future.
    @Test(arguments: [
        ("Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_800),
        ("Tuesday, 01-Jan-69 00:00:00 GMT", 3_124_224_000),
        ("Wednesday, 01-Jan-70 00:00:00 GMT", 3_155_760_000),
        ("Thursday, 26-Nov-76 04:00:00 GMT", 3_373_588_800),
        ("Friday, 26-Nov-76 04:00:01 GMT", 217_828_801),
        ("Saturday, 01-Jan-00 00:00:00 GMT", 946_684_800),
        ("Friday, 31-Dec-99 23:59:59 GMT", 946_684_799),
    ])
    func anOddDateIsRead(text: String, seconds: Int64) {
        #expect(date(text)?.seconds == seconds)
    }

    @Test(arguments: ["Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"])
    func theObsoleteFormsAreRead(text: String) {
        #expect(date(text) == HTTPDate(seconds: 784_111_777))
    }

    @Test(arguments: [
        "", "now", "Sun, 06 Nov 1994", "Sun, 06 Nov 1994 08:49:37 CET",
        "Sun, 32 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, 06 Foo 1994 08:49:37 GMT", "Sun, +6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49 GMT", "Sun, 31 Apr 1994 08:49:37 GMT",
        "Sun, 00 Nov 1994 08:49:37 GMT",
        "Mon, 29 Feb 2100 00:00:00 GMT", "Sun, 06 Nov 1994 08:49:61 GMT",
        "Sun, 06 Nov 1994 08:60:37 GMT", "Sun, 06 Nov 11994 08:49:37 GMT",
        "1994-11-06T08:49:37Z", "784111777",
    ])
    func anythingElseIsNoDate(text: String) {
        #expect(date(text) == nil)
    }

    @Test
    func daysAcrossFourCenturiesComeBack() {
        for day in stride(from: Int64(-36_524), to: 146_097, by: 13) {
            let date = HTTPDate(seconds: day * 86400)
            #expect(self.date(date.description) == date)
        }
    }

    @Test(
        arguments: [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
            ("Sun Nov  6 08:49:37 1994", 784_111_777),
            ("Sun, 6 November 1994 8:49:37 UTC", 784_111_777),
            ("1994;6nov 08:49:37.5 +0100", nil), ("94/6/nov 8:49:37", nil),
            ("6-nov-94 8:49:37", 784_111_777), ("08:49:37x 6x NOVember 1994x", 784_111_777),
            ("01 Jan 69 00:00:00", 3_124_224_000), ("01 Jan 70 00:00:00", 0),
            ("31 Feb 2020 00:00:00", nil), ("01 Jan 1600 00:00:00", nil),
            ("01 Jan 2020 24:00:00", nil), ("01 Jan 2020 00:00", nil), ("01 Jan 2020", nil),
            ("Jan 2020 00:00:00", nil), ("0", nil), ("", nil),
        ] as [(String, Int64?)]
    )
    func theDateOfACookieIsRead(text: String, seconds: Int64?) {
        #expect(HTTPDate(cookie: text)?.seconds == seconds)
    }
}
