import StageTesting

// Misbehaviours of servers in the content that they send, or in its version.

extension Misbehaviour {
    static let contents: [Misbehaviour] =
        [
            .answers(
                "has the right length and other bytes",
                .fails(.wrong, "is not the expected one")
            ) { [.content(noise($0.content.count, seed: 99))] }
            .except(.manifest, .fails(.wrong, "UTF-8")).on(ServedResource.allCases),
            .answers("has one other bit", .fails(.wrong, "is not the expected one")) { served in
                var content = served.content
                content[content.count / 2] ^= 1
                return [.content(content)]
            }
            .on([.archive, .index, .bundle, .delta, .patch]),
            .answers("has a byte too few", .fails(.wrong, "expected")) { served in
                [.content(Array(served.content.dropLast()))]
            }
            .on([.archive, .bundle, .patch]),
            .answers("has a byte too many", .fails(.wrong, "expected")) { served in
                [.content(served.content + [0])]
            }
            .except(.manifest, .fails(.wrong, "not JSON")),
            .answers("has nothing", .fails(.wrong, "found 0")) { _ in [.content([])] }
                .except(.manifest, .fails(.wrong, "not JSON")),
            .answers("has the gzip of it", .fails(.wrong, "expected")) { served in
                [.content([0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3] + served.content)]
            }
            .except(.manifest, .fails(.wrong, "UTF-8")),
            .answers(
                "has a page for a person",
                .fails(.portal, "a login page intercepted the download")
            ) {
                _ in [.portal]
            }
            .on(ServedResource.allCases),
            .answers("calls a page something else", .fails(.wrong, "expected")) { _ in
                [.portal.field("Content-Type", "application/json")]
            }
            .except(.manifest, .fails(.wrong, "not JSON")),
            .answers("leads to a login elsewhere", .fails(.portal, "login")) { served in
                let login = served.url("/login").replacing("127.0.0.1", with: "localhost")
                return [.redirect(to: login)]
            },
            .answers("never ends", .fails(.wrong, "found more")) { served in
                [Answer(content: served.content).with { $0.isEndless = true }]
            }
            .except(.manifest, .fails(.refused, "larger than"))
            .except(.index, .fails(.refused, "larger than"))
            .on([.manifest, .archive, .index]),
        ] + texts

    /// Texts instead of a manifest.
    private static let texts: [Misbehaviour] =
        [
            ("UTF-16", [0xFF, 0xFE], "UTF-8"), ("Latin-1", Array("\"".utf8) + [0xE4], "UTF-8"),
            ("blanks alone", Array(repeating: 0x20, count: 100), "not JSON"),
            ("'null'", Array("null".utf8), "not valid"), ("'[]'", Array("[]".utf8), "not valid"),
            ("100,000 brackets", Array(repeating: 0x5B, count: 100_000), "not JSON"),
            ("a long number", Array(repeating: 0x31, count: 100_000), "not"),
            ("zero bytes", [0, 0, 0, 0], "not JSON"),
        ].map { name, bytes, words in
            .answers("has \(name)", .fails(.wrong, words)) { served in
                [.content(bytes + (bytes.count < 4 ? served.content : []))]
            }
            .on([.manifest])
        }

    /// Unusual responses that do no harm.
    static let harmless: [Misbehaviour] =
        [
            .answers("begins with a byte order mark", .right) { served in
                [.content([0xEF, 0xBB, 0xBF] + served.content)]
            }
            .on([.manifest]),
            .bytes("has no reason after the status", .right) { served in
                Array("HTTP/1.1 200\r\nContent-Length: \(served.content.count)\r\n\r\n".utf8)
                    + served.content
            }
            .on(ServedResource.allCases),
        ]
        + [
            ("Content-Type", "image/png"), ("Content-Type", ""), ("Content-Type", ";;;"),
            ("Content-Type", String(repeating: "a", count: 10_000)), ("Date", "yesterday"),
            ("Date", "Thu, 01 Jan 1970 00:00:00 GMT"), ("Last-Modified", "?"), ("ETag", "W/\"1\""),
            ("ETag", "unquoted"), ("ETag", String(repeating: "e", count: 10_000)), ("Age", "-1"),
            ("Accept-Ranges", "none"), ("Connection", "keep-alive, close"), ("Keep-Alive", "x"),
            ("Content-Disposition", "attachment; filename=../../etc/passwd"),
            ("Alt-Svc", "h3=\":1\""), ("Strict-Transport-Security", "max-age=99999999"),
            ("Refresh", "0; url=http://127.0.0.1:1/"), ("Upgrade", "h2c"), ("Trailer", "X"),
            ("Location", "/elsewhere"), ("Content-Location", "http://127.0.0.1:1/"),
        ].map { name, value in
            .answers("sends \(name): \(value.prefix(40))", .right) { served in
                [.content(served.content).field(name, value)]
            }
            .on(name == "ETag" ? ServedResource.documents : [.archive])
        } + [
            .bytes("sends more after the end", .right) { served in
                served.correct() + Array("HTTP/1.1 500 x\r\n\r\ngarbage".utf8)
            }
            .on([.manifest, .archive, .index, .bundle]),
            .script("sends the body in small pieces", .right) { wire, served in
                wire.drip(served.correct(), pause: 0)
            },
        ]

    /// Wrong responses to range requests; without `Range` the server is correct.
    static let ranges: [Misbehaviour] =
        [
            .part("the whole", "200 OK", nil),
            .part("416", "416 x", "bytes */1"), .part("416 without a total", "416 x", nil),
            .part("206 without Content-Range", "206 x", nil),
            .part("206 of other bytes", "206 x", "bytes 0-9/TOTAL"),
            .part("206 of another total", "206 x", "bytes FIRST-LAST/7"),
            .part("206 of an impossible part", "206 x", "bytes 9-3/TOTAL"),
            .part("206 in other units", "206 x", "lines FIRST-LAST/TOTAL"),
            .part("206 that is no range", "206 x", "bytes nonsense"),
            .part("206 beyond 2^63", "206 x", "bytes 9223372036854775807-9223372036854775808/1"),
            .part("206 that is encoded", "206 x", "bytes FIRST-LAST/TOTAL", "Content-Encoding: br"),
            .part("206 with two lengths", "206 x", "bytes FIRST-LAST/TOTAL", "Content-Length: 3"),
            .part("several parts", "206 x", nil, "Content-Type: multipart/byteranges; boundary=a"),
        ] + [
            .script("gives a part of other bytes", .fails(.wrong, "is not the expected one")) {
                wire,
                served in
                guard let part = wire.part(of: served) else { return }
                let bytes = noise(part.count, seed: 5)
                wire.send(
                    StagePackCommandTests.head(
                        "206 x",
                        [
                            "Content-Length: \(part.count)",
                            "Content-Range: bytes \(part.lowerBound)-\(part.upperBound - 1)/"
                                + "\(served.content.count)",
                        ]
                    )
                )
                wire.send(bytes)
                wire.end()
            }
            .on([.range])
        ]

    /// Servers whose content changes between two requests.
    static let versions: [Misbehaviour] = [
        .answers("changes under another tag", .right) { served in
            let other = noise(served.content.count, seed: 4)
            return [
                Answer.content(other).tagged("\"1\"").cut(after: served.content.count / 2),
                Answer.content(served.content).tagged("\"2\""),
            ]
        }
        .with("--attempts", "3").on([.archive, .index, .bundle]),
        .answers("changes under another tag and ignores If-Range", .right) { served in
            let other = noise(served.content.count, seed: 4)
            return [
                Answer.content(other).tagged("\"1\"").cut(after: served.content.count / 2),
                Answer.content(served.content).tagged("\"2\"").ignoringIfRange(),
            ]
        }
        .with("--attempts", "3").on([.archive, .index, .bundle]),
        .answers("changes under the same tag", .right) { served in
            let other = noise(served.content.count, seed: 4)
            return [
                Answer.content(other).tagged("\"1\"").cut(after: served.content.count / 2),
                Answer.content(served.content).tagged("\"1\""),
            ]
        }
        .with("--attempts", "3").on([.archive, .index, .bundle]),
        .answers("changes under a weak tag", .right) { served in
            let other = noise(served.content.count, seed: 4)
            return [
                Answer.content(other).tagged("W/\"1\"").cut(after: served.content.count / 2),
                Answer.content(served.content).tagged("W/\"1\""),
            ]
        }
        .with("--attempts", "3").on([.archive, .index, .bundle]),
    ]

    /// Servers that delay a command, with the words of the message for the place.
    static let delays: [Misbehaviour] = [
        .script("never answers", .fails(.request, "stalled for 60 seconds")) { wire, _ in
            wire.waitForEnd()
        }
        .on([.manifest, .archive, .index, .bundle, .delta]),
        .script("stops within the head", .fails(.request, "stalled for 60 seconds")) { wire, _ in
            wire.send("HTTP/1.1 200 OK\r\nContent-")
            wire.waitForEnd()
        },
        .answers("stops in the middle", .fails(.request, "stalled for 60 seconds")) { served in
            [.content(served.content).stalled(after: 100)]
        }
        .on([.manifest, .archive, .index, .bundle]),
        .script("sends ten bytes a second", .fails(.request, "stalled for 60 seconds")) {
            wire,
            served in
            wire.drip(served.correct("X: \(String(repeating: "x", count: 5000))"), pause: 100_000)
        }
        .on([.manifest, .archive]),
        .answers("never ends a chunk's extension", .fails(.request, "stalled")) { _ in
            [.flood(.chunkExtension)]
        },
        .script("sends an interim answer a second", .fails(.request, "stalled")) { wire, _ in
            for _ in 0..<200 {
                guard wire.send("HTTP/1.1 102 Processing\r\n\r\n") else { return }
                wire.pause(milliseconds: 1000)
            }
        },
    ]
}

extension Misbehaviour {
    /// A server with this response to a range request.
    fileprivate static func part(
        _ name: String,
        _ status: String,
        _ range: String?,
        _ lines: String...
    ) -> Misbehaviour {
        .script("answers a request for a part with \(name)", .right) { wire, served in
            guard let part = wire.part(of: served) else {
                wire.send(served.correct())
                return wire.end()
            }
            let body = status.hasPrefix("200") ? served.content : Array(served.content[part])
            let text = range.map {
                "Content-Range: "
                    + $0.replacing("FIRST", with: "\(part.lowerBound)")
                    .replacing("LAST", with: "\(part.upperBound - 1)")
                    .replacing("TOTAL", with: "\(served.content.count)")
            }
            let all = ["Content-Length: \(body.count)"] + lines + [text].compactMap { $0 }
            wire.send(Array(StagePackCommandTests.head(status, all).utf8) + body)
            wire.end()
        }
        .on([.range])
    }
}

extension Wire {
    /// The requested range; `nil` for the whole content.
    fileprivate func part(of served: Served) -> Range<Int>? {
        guard let start = request.rangeStart, start < served.content.count else { return nil }
        return start..<min((request.rangeEnd ?? .max - 1) + 1, served.content.count)
    }
}
