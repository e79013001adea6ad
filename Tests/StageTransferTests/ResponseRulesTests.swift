import Testing

@testable import StageTransfer

/// Creates a head from a status and some header lines.
private func head(_ status: Int, _ lines: String...) -> ResponseHead {
    var head = ResponseHead(status: status)
    for line in lines { head.read("\(line)\r\n"[...]) }
    return head
}

/// The rows of the response table, with values on both sides of each boundary.
@Suite struct ResponseRulesTests {
    typealias Decision = ResponseRules.Decision

    /// A range request for the bytes from 50 on, of a total of 100, of the version `"a"`.
    static let ranged = ResponseRules(
        offset: 50,
        validator: .entityTag("\"a\""),
        size: 100,
        expectedKind: .archive
    )
    /// A request for all 100 bytes.
    static let whole = ResponseRules(size: 100, expectedKind: .archive)

    @Test(arguments: [
        (head(206, "Content-Range: bytes 50-99/100", "ETag: \"a\""), Decision.append),
        (head(206, "content-range:bytes 50-99/100", "ETag: \"a\""), .append),
        (head(206, "Content-Range: bytes 50-79/100", "ETag: \"a\""), .append),
        (
            head(
                206,
                "Content-Range: bytes 50-99/100",
                "Content-Encoding: identity",
                "ETag: \"a\""
            ), .append
        ),
        (head(206, "Content-Range: bytes 32-99/100", "ETag: \"a\""), .compare(from: 32)),
        (head(206, "Content-Range: bytes 0-99/100", "ETag: \"a\""), .compare(from: 0)),
        (
            head(206, "Content-Range: bytes 60-99/100"),
            .distrustRanges("206 from 60, not 50")
        ),
        (
            head(206, "Content-Range: bytes 0-49/100"),
            .distrustRanges("206 from 0, not 50")
        ),
        (head(206), .distrustRanges("206 without one usable Content-Range")),
        (
            head(206, "Content-Type: multipart/byteranges; boundary=x"),
            .distrustRanges("206 without one usable Content-Range")
        ),
        (
            head(
                206,
                "Content-Type: Multipart/Byteranges; boundary=x",
                "Content-Range: bytes 50-99/100",
                "ETag: \"a\""
            ), .distrustRanges("206 without one usable Content-Range")
        ),
        (
            head(
                206,
                "Content-Range: bytes 0-99/100",
                "Content-Range: bytes 50-99/100",
                "ETag: \"a\""
            ), .distrustRanges("206 without one usable Content-Range")
        ),
        (
            head(
                206,
                "Content-Range: bytes 50-99/100",
                "Content-Range: bytes 50-99/100",
                "ETag: \"a\"",
                "ETag: \"a\""
            ), .append
        ),
        (
            head(206, "Content-Range: bytes 50-99/100", "ETag: \"b\"", "ETag: \"a\""),
            .distrustRanges("206 of another version")
        ),
        (
            head(
                206,
                "Content-Range: bytes 50-99/100",
                "Content-Encoding: gzip",
                "Content-Encoding: identity",
                "ETag: \"a\""
            ), .distrustRanges("content encoding gzip, identity")
        ),
        (
            head(206, "Content-Range: bytes 99-50/100"),
            .distrustRanges("206 without one usable Content-Range")
        ),
        (
            head(206, "Content-Range: bytes */100"),
            .distrustRanges("206 without one usable Content-Range")
        ),
        (head(206, "Content-Range: bytes 50-99/101"), .distrustRanges("206 of another total")),
        (head(206, "Content-Range: bytes 50-99/*"), .distrustRanges("206 of another total")),
        (
            head(206, "Content-Range: bytes 50-99/100", "ETag: \"b\""),
            .distrustRanges("206 of another version")
        ),
        (
            head(206, "Content-Range: bytes 50-99/100", "ETag: W/\"a\""),
            .distrustRanges("206 of another version")
        ),
        (
            head(206, "Content-Range: bytes 50-99/100", "Content-Encoding: gzip"),
            .distrustRanges("content encoding gzip")
        ),
        (
            head(206, "Content-Range: bytes 50-99/100", "Content-Length: 51"),
            .distrustRanges("206 whose length contradicts its range")
        ),
        (
            head(206, "Content-Range: bytes 50-99/100"),
            .distrustRanges("206 without a validator")
        ),
        (
            head(206, "Content-Range: bytes 50-99/100", "Last-Modified: now"),
            .distrustRanges("206 without a validator")
        ),
        (head(200), .begin),
        (head(200, "Content-Encoding: gzip"), .distrustRanges("content encoding gzip")),
        (head(200, "Content-Encoding:"), .begin),
        (head(200, "Content-Length: 100", "ETag: \"b\""), .begin),
        (head(200, "Content-Length: 99"), .wrongSize(99)),
        (head(200, "Content-Length: 50", "Content-Type: text/html"), .portal),
        (
            head(200, "Content-Range: bytes 50-99/100"),
            .distrustRanges("200 with Content-Range")
        ),
        (head(416, "Content-Range: bytes */100"), .restart),
        (head(416, "Content-Range: bytes */50"), .restart),
        (head(416), .restart),
        (head(304), .restart),
        (head(412), .restart),
    ])
    func anAnswerToARequestForARange(head: ResponseHead, decision: Decision) {
        #expect(Self.ranged.judge(head) == decision)
    }

    @Test func contentWithAKnownDigestIsContinuedWithoutValidator() {
        var rules = Self.ranged
        rules.hasKnownDigest = true
        #expect(rules.judge(head(206, "Content-Range: bytes 50-99/100")) == .append)
        let other = head(206, "Content-Range: bytes 50-99/100", "ETag: \"b\"")
        #expect(rules.judge(other) == .distrustRanges("206 of another version"))
        rules.validator = nil
        #expect(rules.judge(other) == .append)
    }

    @Test func nothingIsMissingWhenTheRangeStartsAtTheEnd() {
        let rules = ResponseRules(offset: 100, validator: .entityTag("\"a\""), size: 100)
        #expect(rules.judge(head(416, "Content-Range: bytes */100")) == .complete)
        #expect(rules.judge(head(416, "Content-Range: bytes */99")) == .restart)
        #expect(rules.judge(head(416)) == .restart)
    }

    /// A range request for the bytes from 50 on, of a total of 100 that the server reported.
    @Test(arguments: [
        (head(206, "Content-Range: bytes 50-99/100", "ETag: \"a\""), Decision.append),
        (head(206, "Content-Range: bytes 50-99/101"), .distrustRanges("206 of another total")),
        (head(206, "Content-Range: bytes 50-99/*"), .distrustRanges("206 of another total")),
        (head(200, "Content-Length: 101"), .begin),
        (head(200), .begin),
        (head(416, "Content-Range: bytes */50"), .restart),
        (head(416, "Content-Range: bytes */100"), .restart),
    ])
    func anAnswerAboutContentOfUnknownSize(head: ResponseHead, decision: Decision) {
        let rules = ResponseRules(offset: 50, validator: .entityTag("\"a\""), partialTotal: 100)
        #expect(rules.judge(head) == decision)
    }

    @Test(arguments: [
        (head(416, "Content-Range: bytes */100"), Decision.complete),
        (head(416, "Content-Range: bytes */100", "ETag: \"a\""), .complete),
        (head(416, "Content-Range: bytes */100", "ETag: \"b\""), .restart),
        (head(416, "Content-Range: bytes */99"), .restart),
        (head(416), .restart),
        (head(200, "Content-Length: 100"), .begin),
    ])
    func theServerSaysWhetherContentOfUnknownSizeIsComplete(
        head: ResponseHead,
        decision: Decision
    ) {
        let rules = ResponseRules(offset: 100, validator: .entityTag("\"a\""), partialTotal: 100)
        #expect(rules.judge(head) == decision)
    }

    @Test(arguments: [
        (head(400), Decision.beginRefusal), (head(401), .beginRefusal), (head(404), .beginRefusal),
        (head(501, "Content-Length: 7"), .beginRefusal),
        (head(404, "Content-Type: text/html"), .beginRefusal),
        (head(404, "Content-Encoding: br"), .encoded("br")),
        (head(511), .portal), (head(503), .retry(status: 503, after: nil)),
        (head(300), .beginRefusal), (head(204), .beginRefusal), (head(304), .beginRefusal),
        (head(412), .beginRefusal), (head(206), .refuse(status: 206)),
        (head(200, "Content-Length: 7"), .wrongSize(7)),
    ])
    func aRefusalMayBeContent(head: ResponseHead, decision: Decision) {
        var rules = Self.whole
        rules.acceptsErrorResponses = true
        #expect(rules.judge(head) == decision)
    }

    @Test(arguments: [401, 407])
    func aStatusOfAChallengeIsNoContent(status: Int) {
        var rules = Self.whole
        rules.acceptsErrorResponses = true
        rules.challengeStatuses = [status]
        #expect(rules.judge(head(status)) == .refuse(status: status))
        #expect(rules.judge(head(403)) == .beginRefusal)
    }

    @Test func aTransientAnswerIsContentWhereNoOtherAttemptFollows() {
        var rules = Self.whole
        rules.acceptsErrorResponses = true
        rules.maximumRetryAfter = .seconds(60)
        let pause = head(503, "Retry-After: 59")
        #expect(rules.judge(pause) == .retry(status: 503, after: .seconds(59)))
        #expect(rules.judge(head(503, "Retry-After: 60")) == .beginRefusal)
        rules.acceptsTransientResponses = true
        #expect(rules.judge(pause) == .beginRefusal)
        rules.acceptsErrorResponses = false
        #expect(rules.judge(pause) == .retry(status: 503, after: .seconds(59)))
    }

    @Test func aRefusalOfARangeIsNoContent() {
        var rules = Self.ranged
        rules.acceptsErrorResponses = true
        #expect(rules.judge(head(412)) == .restart)
        #expect(rules.judge(head(416)) == .restart)
        rules.hasInsecureHostChange = true
        #expect(rules.judge(head(403, "Content-Type: text/html")) == .portal)
    }

    @Test func anotherMethodMayBringAnySuccess() {
        let rules = ResponseRules(isGet: false)
        for status in [200, 201, 202, 203, 204] { #expect(rules.judge(head(status)) == .begin) }
        let part = head(206, "Content-Range: bytes 0-9/10")
        #expect(rules.judge(part) == .refuse(status: 206))
    }

    @Test func aLengthDoesNotCountBesideChunks() throws {
        let chunked = head(200, "Content-Length: 7", "Transfer-Encoding: chunked")
        #expect(chunked.bodyLength == nil)
        #expect(Self.whole.judge(chunked) == .begin)
        for length in ["-1", "+1", "1,x", "0x1", "", "1,2", "9223372036854775808"] {
            let head = head(200, "Content-Length: \(length)")
            let fault = try #require(head.lengthFault)
            #expect(Self.whole.judge(head) == .malformed(fault))
        }
        #expect(head(200, "Content-Length: 1, 1").bodyLength == 1)
    }

    @Test(arguments: [
        (head(200), Decision.begin), (head(201), .begin), (head(204), .begin),
        (head(206), .begin), (head(302, "Location: /there"), .begin), (head(304), .begin),
        (head(303, "Location: /there"), .begin), (head(301), .begin),
        (head(307, "Location: /there"), .redirect(to: "/there")),
        (head(308, "Location: /there"), .redirect(to: "/there")),
        (head(307), .malformed("status 307 without 'Location'")),
        (head(400), .begin), (head(401), .begin), (head(404), .begin), (head(412), .begin),
        (head(416), .begin), (head(501), .begin), (head(511), .portal),
        (head(408), .retry(status: 408, after: nil)),
        (head(503, "Retry-After: 7"), .retry(status: 503, after: .seconds(7))),
    ])
    func anAnswerToAnUpload(head: ResponseHead, decision: Decision) {
        let rules = ResponseRules()
        #expect(rules.judgeUpload(head, mayRepeat: true) == decision)
        let isRetried = decision == .retry(status: head.status, after: head.retryDelay)
        #expect(rules.judgeUpload(head, mayRepeat: false) == (isRetried ? .begin : decision))
    }

    /// A digest decides whether the content is the requested one.
    @Test func aContentCodingIsANameOnlyIfTheSizeIsThatOfTheContent() {
        var rules = ResponseRules(size: 100)
        let whole = head(200, "Content-Encoding: x-gzip", "Content-Length: 100")
        #expect(rules.judge(whole) == .encoded("x-gzip"))
        rules.hasKnownDigest = true
        #expect(rules.judge(whole) == .begin)
        for other in ["Content-Length: 99", "Transfer-Encoding: chunked"] {
            #expect(rules.judge(head(200, "Content-Encoding: gzip", other)) == .encoded("gzip"))
        }
        rules.decodesContent = true
        rules.size = nil
        #expect(rules.judge(whole) == .begin)
        rules.isProbe = true
        #expect(rules.judge(whole) == .probeSucceeded)
        rules = ResponseRules(offset: 50, size: 100, hasKnownDigest: true)
        let part = head(206, "Content-Range: bytes 50-99/100", "Content-Encoding: gzip")
        #expect(rules.judge(part) == .append)
        rules.decodesContent = true
        #expect(rules.judge(part) == .distrustRanges("content encoding gzip"))
    }

    @Test(arguments: [
        (head(200, "Content-Length: 100"), Decision.begin),
        (head(200), .begin),
        (head(200, "Content-Length: 101"), .wrongSize(101)),
        (head(200, "Content-Encoding: gzip"), .encoded("gzip")),
        (head(200, "Content-Encoding: gzip", "Content-Encoding:"), .encoded("gzip, ")),
        (head(200, "Content-Encoding: identity, identity"), .begin),
        (head(200, "Content-Type: text/html; charset=utf-8", "Content-Length: 100"), .portal),
        (head(200, "Content-Type: TEXT/HTML"), .portal),
        (head(200, "Content-Type: application/xhtml+xml"), .portal),
        (head(200, "Content-Range: bytes 0-99/100"), .refuse(status: 200)),
        (head(206, "Content-Range: bytes 0-99/100"), .refuse(status: 206)),
        (head(204), .refuse(status: 204)),
        (head(304), .refuse(status: 304)),
        (head(412), .refuse(status: 412)),
        (head(416, "Content-Range: bytes */100"), .refuse(status: 416)),
        (head(511), .portal),
        (head(511, "Content-Type: text/html"), .portal),
    ])
    func anAnswerToARequestForEverything(head: ResponseHead, decision: Decision) {
        #expect(Self.whole.judge(head) == decision)
    }

    @Test(arguments: [ranged, whole], [301, 302, 303, 307, 308])
    func aRedirectIsFollowedWhereItLeadsSomewhere(rules: ResponseRules, status: Int) {
        #expect(rules.judge(head(status, "Location: /there")) == .redirect(to: "/there"))
        let fault = "status \(status) without 'Location'"
        #expect(rules.judge(head(status)) == .malformed(fault))
        #expect(rules.judge(head(status, "Location: ")) == .malformed(fault))
    }

    @Test(arguments: [ranged, whole], [408, 425, 429, 500, 502, 503, 504, 509, 520, 522, 599])
    func aFailureThatPassesIsTriedAgain(rules: ResponseRules, status: Int) {
        #expect(rules.judge(head(status)) == .retry(status: status, after: nil))
        let pausing = head(status, "Retry-After: 7")
        #expect(rules.judge(pausing) == .retry(status: status, after: .seconds(7)))
    }

    @Test(arguments: [
        300, 305, 400, 401, 403, 404, 405, 407, 410, 451, 499, 501, 505, 506, 507, 508, 510, 600,
    ])
    func anyOtherStatusIsARefusal(status: Int) {
        #expect(Self.whole.judge(head(status)) == .refuse(status: status))
    }

    /// The request without a range decides; statuses about credentials and logins do not depend on ranges.
    @Test(arguments: [201, 204, 300, 305, 400, 403, 404, 405, 410, 451, 501, 505], [true, false])
    func aRefusalMayConcernTheRangeAlone(status: Int, isContent: Bool) {
        var rules = Self.ranged
        rules.acceptsErrorResponses = isContent
        rules.toleratesMissing = true
        #expect(rules.judge(head(status)) == .distrustRanges("status \(status)"))
        for status in [401, 407] {
            let refusal = Decision.refuse(status: status)
            #expect(rules.judge(head(status)) == (isContent ? .beginRefusal : refusal))
        }
        #expect(rules.judge(head(511)) == .portal)
    }

    @Test(arguments: [404, 410])
    func aMissingResourceIsRequestedAgain(status: Int) {
        var rules = Self.whole
        rules.toleratesMissing = true
        #expect(rules.judge(head(status)) == .retry(status: status, after: nil))
    }

    @Test func aPageAfterAnUnencryptedRedirectIsAPortal() {
        var rules = ResponseRules(size: 100)
        #expect(rules.judge(head(200, "Content-Type: text/html")) == .begin)
        rules.hasInsecureHostChange = true
        #expect(rules.judge(head(200, "Content-Type: text/html")) == .portal)
        #expect(rules.judge(head(403, "Content-Type: text/html")) == .portal)
        #expect(rules.judge(head(403)) == .refuse(status: 403))
        #expect(rules.judge(head(302, "Content-Type: text/html")) == .portal)
        #expect(rules.judge(head(302)) == .malformed("status 302 without 'Location'"))
    }

    @Test func aDocumentHasALimitInsteadOfASize() {
        let rules = ResponseRules(limit: 10, expectedKind: .json, isConditional: true)
        #expect(rules.judge(head(200, "Content-Length: 10")) == .begin)
        #expect(rules.judge(head(200, "Content-Length: 11")) == .tooLarge)
        #expect(rules.judge(head(304)) == .notModified)
        #expect(rules.judge(head(200, "Content-Type: text/html")) == .portal)
    }

    @Test(arguments: [
        ("7", Duration.seconds(7)), ("0", nil), ("-5", nil), ("999999999", .seconds(86400)),
        ("9223372036854775807", .seconds(86400)), ("9223372036854775808", .seconds(86400)),
        ("99999999999999999999999", .seconds(86400)), ("-99999999999999999999999", nil),
        ("Sun, 06 Nov 1994 08:50:37 GMT", .seconds(60)), ("soon", nil), ("", nil), ("7s", nil),
        ("Sun, 06 Nov 1994 08:00:00 GMT", nil),
        ("Fri, 11 Nov 1994 08:00:00 GMT", .seconds(86400)),
    ])
    func thePauseIsReadInEitherForm(text: String, pause: Duration?) {
        let head = head(503, "Retry-After: \(text)", "Date: Sun, 06 Nov 1994 08:49:37 GMT")
        #expect(head.retryDelay == pause)
    }

    @Test(arguments: [[], ["Date: yesterday"]])
    func withoutADateThePauseCountsFromThisClock(lines: [String]) {
        func pause(_ text: String) -> Duration? {
            var head = head(503, "Retry-After: \(text)")
            for line in lines { head.read("\(line)\r\n"[...]) }
            return head.retryDelay
        }
        #expect(pause("Wed, 21 Oct 2099 07:28:00 GMT") == .seconds(86400))
        #expect(pause("Wed, 21 Oct 1999 07:28:00 GMT") == nil)
    }
}

@Suite struct ValidatorTests {
    private static let date = "Date: Sun, 06 Nov 1994 08:49:37 GMT"

    @Test(arguments: [
        (head(200, "ETag: \"a\""), Validator.entityTag("\"a\"")),
        (head(200, "ETag: \"\""), .entityTag("\"\"")),
        (head(200, "ETag: W/\"a\""), nil),
        (head(200, "ETag: a"), nil),
        (head(200, "ETag: \"a\"b\""), nil),
        (head(200, "ETag: \"b\"", "ETag: \"a\""), nil),
        (head(200, "ETag: \"a\"", "ETag: \"a\""), .entityTag("\"a\"")),
        (head(200, "ETag: \"a b\""), nil),
        (head(200), nil),
        (
            head(200, date, "Last-Modified: Sun, 06 Nov 1994 08:49:36 GMT"),
            .lastModified("Sun, 06 Nov 1994 08:49:36 GMT")
        ),
        (head(200, date, "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"), nil),
        (
            head(
                200,
                date,
                "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT",
                "Last-Modified: Sun, 06 Nov 1994 08:49:36 GMT"
            ), nil
        ),
        (head(200, date, "Last-Modified: S\u{FC}n, 06 Nov 1994 08:49:36 GMT"), nil),
        (head(200, "Last-Modified: Sun, 06 Nov 1994 08:49:36 GMT"), nil),
        (
            head(200, date, "ETag: \"a\"", "Last-Modified: Sun, 06 Nov 1994 08:49:36 GMT"),
            .entityTag("\"a\"")
        ),
        (head(200, date, "ETag: \"a\"", "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"), nil),
        (head(200, "ETag: \"a\"", "Last-Modified: now"), .entityTag("\"a\"")),
        (head(200, date, "ETag: W/\"a\"", "Last-Modified: Sun, 06 Nov 1994 08:49:36 GMT"), nil),
    ])
    func onlyAStrongValidatorCounts(head: ResponseHead, validator: Validator?) {
        #expect(Validator(head) == validator)
    }
}
