import StageTesting

// Misbehaviours of servers, by the part of HTTP that they violate.

extension Misbehaviour {
    /// Every misbehaviour that ends without a timeout of minutes.
    static let catalogue: [Misbehaviour] =
        connections + heads + statusLines + statuses + pauses + redirects + lengths + chunks
        + encodings + contents + harmless + ranges + versions

    private static let connections: [Misbehaviour] = [
        .answers("closes at once", .fails(.request, "without a response")) { _ in [.dropped] }
            .on(ServedResource.allCases),
        .script("resets at once", .fails(.request, "connection reset by 127.0.0.1:")) { wire, _ in
            wire.reset()
        }
        .on(ServedResource.allCases),
        .bytes("closes within the status line", .fails(.request, "failed")) { _ in
            Array("HTTP/1.".utf8)
        },
        .bytes("closes within the head", .fails(.request, "failed")) { _ in
            Array("HTTP/1.1 200 OK\r\nContent-Type: a".utf8)
        },
        .head("closes after the head", .fails(.request, "bytes missing"), "200 OK")
            .cut(keeping: 0),
        .head("closes in the middle", .fails(.request, "bytes missing"), "200 OK")
            .cut(keeping: 100)
            .on([.manifest, .archive, .index, .bundle, .range, .delta]),
        .script("resets in the middle", .fails(.request, "connection reset by 127.0.0.1:")) {
            wire,
            served in
            wire.send(Array(served.correct().dropLast(20)))
            wire.reset()
        }
        .on(ServedResource.wholes),
        .answers("closes at once, then behaves", .right) { [.dropped, .content($0.content)] }
            .with("--attempts", "2").on(ServedResource.allCases),
        .answers("is cut in the middle, then behaves", .right) { served in
            [.content(served.content).cut(after: 100), .content(served.content)]
        }
        .with("--attempts", "2").on(ServedResource.allCases),
    ]

    private static let heads: [Misbehaviour] =
        [
            (Answer.Flood.fields, "its head has more than"), (.field, "its head has more than"),
            (.continuations, "its head has more than"),
            (.interim, "its heads and trailers have more than"),
            (.emptyLines, "HTTP status line"),
            (.trailers, "its heads and trailers have more than"),
        ].map { flood, words in
            .answers("sends without end: \(flood)", .fails(.refused, words)) { _ in
                [.flood(flood)]
            }
            .on([.manifest, .archive, .bundle, .delta])
        } + [
            .answers("sends without end: trailer", .fails(.refused, "a line of more")) { _ in
                [.flood(.trailer)]
            },
            .script("sends the head byte by byte", .right) { wire, served in
                let answer = served.correct()
                let length = answer.count - served.content.count
                wire.drip(Array(answer.prefix(length)), pause: 2000)
                wire.send(Array(answer.dropFirst(length)))
            },
            .bytes("sends 2,000 interim answers first", .right) { served in
                let interim = String(repeating: "HTTP/1.1 103 Early Hints\r\n\r\n", count: 2000)
                return Array(interim.utf8) + served.correct()
            },
            .bytes("sends 200 cookies", .right) { served in
                let cookie = "Set-Cookie: a=\(String(repeating: "c", count: 200))"
                let lines = [String](repeating: cookie, count: 200)
                let length = "Content-Length: \(served.content.count)"
                return Array(StagePackCommandTests.head("200 OK", [length] + lines).utf8)
                    + served.content
            },
            .bytes("sends 1,000 cookies", .fails(.refused, "more than 256 fields")) { served in
                let lines = (0..<1000).map { "Set-Cookie: a\($0)=b" }
                return Array(StagePackCommandTests.head("200 OK", lines).utf8)
            },
            .bytes("sends a line without a colon", .fails(.refused, "invalid")) { served in
                served.correct("no field at all", "\u{0}\u{1}")
            },
            .bytes("ends lines with LF alone", .right) { served in
                let length = "Content-Length: \(served.content.count)"
                return Array("HTTP/1.1 200 OK\n\(length)\n\n".utf8) + served.content
            },
            .bytes("switches protocols unasked", .fails(.refused, "101")) { _ in
                let head = StagePackCommandTests.head(
                    "101 Switching Protocols",
                    ["Connection: Upgrade", "Upgrade: h2c"]
                )
                return Array(head.utf8) + [0, 0, 0, 4, 0, 0, 0, 0, 0]
            },
        ]

    /// Bytes before the head, or instead of its first line.
    private static let statusLines: [Misbehaviour] =
        [
            ("garbage", "garbage\r\n"), ("an empty line", "\r\n"), ("blanks", "   "),
            ("HTTP/0.9", ""), ("an SSH banner", "SSH-2.0-OpenSSH_9.2\r\n"),
            ("a TLS alert", "\u{15}\u{3}\u{1}\u{0}\u{2}\u{2}\u{46}"),
            ("an HTTP/2 frame", "\u{0}\u{0}\u{0}\u{4}\u{0}\u{0}\u{0}\u{0}\u{0}"),
            ("ICY", "ICY 200 OK\r\n\r\n"), ("zero bytes", "\u{0}\u{0}\u{0}\u{0}"),
        ].map { name, text in
            .bytes("begins with \(name)", .fails(.refused, "sent an invalid response")) { served in
                Array(text.utf8) + (name == "HTTP/0.9" ? served.content : served.correct())
            }
            .on(ServedResource.documents + (name == "garbage" ? [.index, .bundle, .delta] : []))
        }
        + [
            "HTTP/9.9 200 OK", "HTTP/1.7 200 OK", "HTTP/1.1 abc", "HTTP/1.1 99 OK",
            "HTTP/1.1 1000 OK", "HTTP/1.1", "HTTP/1.1 -200 OK", "HTTP/3 200",
        ].map { line in
            .bytes("has the status line '\(line)'", .fails(.refused, "sent an invalid response")) {
                Array("\(line)\r\nContent-Length: \($0.content.count)\r\n\r\n".utf8) + $0.content
            }
        }

    /// Statuses of a server that may have the file later.
    private static let transient: Set<Int> = [408, 425, 429, 500, 502, 503, 504, 522, 599]

    private static let statuses: [Misbehaviour] =
        [
            201, 202, 203, 204, 205, 226, 299, 300, 304, 305, 306, 400, 401, 402, 403, 404, 405,
            406,
            407, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418, 421, 422, 423, 424, 425,
            426,
            428, 429, 431, 451, 500, 501, 502, 503, 504, 505, 506, 507, 508, 510, 522,
            599, 600, 999,
        ].map { status in
            .answers(
                "answers with \(status)",
                .fails(transient.contains(status) ? .request : .refused, "status \(status)")
            ) { _ in
                [.status(status)]
            }
            .on([404, 407, 503].contains(status) ? ServedResource.allCases : [.archive])
        } + [
            .answers("answers with 511", .fails(.portal, "login")) { _ in [.status(511)] },
            .answers("answers 206 unasked", .fails(.refused, "206 without a request")) { served in
                let range = "bytes 0-\(served.content.count - 1)/\(served.content.count)"
                return [
                    Answer(content: served.content).with { $0.status = 206 }
                        .field("Content-Range", range)
                ]
            }
            .on([.manifest, .archive, .index]),
            .answers("answers 200 with Content-Range", .fails(.refused, "200 with")) { served in
                [.content(served.content).ignoringRanges().field("Content-Range", "bytes 0-1/2")]
            },
        ]

    /// Servers that ask clients to wait before the next request.
    private static let pauses: [Misbehaviour] =
        [
            ("120", "in 120 seconds"), ("3600", "in 60 minutes"), ("0", "later"),
            ("99999999999999", "in 24 hours"), ("-5", "later"), ("soon", "later"),
            ("99999999999999999999999", "in 24 hours"),
            ("Wed, 21 Oct 2099 07:28:00 GMT", "in 24 hours"),
            ("Wed, 21 Oct 1999 07:28:00 GMT", "later"),
        ].map { value, words in
            .answers("503, Retry-After: \(value)", .fails(.request, "run it again \(words)")) { _ in
                [.status(503).field("Retry-After", value)]
            }
        } + [
            .answers("503 for an hour, to a patient run", .fails(.request, "wait 60 minutes")) {
                _ in
                [.status(503).field("Retry-After", "3600")]
            }
            .with().on([.manifest, .archive, .index, .bundle]),
            .answers("429 for a second, then behaves", .right) { served in
                [.status(429).field("Retry-After", "1"), .content(served.content)]
            }
            .with("--attempts", "2").on(ServedResource.allCases),
        ]

    private static let redirects: [Misbehaviour] =
        [
            "file:///etc/passwd", "ftp://127.0.0.1/a", "gopher://127.0.0.1/a",
            "javascript:alert(1)",
            "http://[", "http://", "http://127.0.0.1:99999/a", "unix:///run/a", "dict:x",
        ].map { target in
            .answers("redirects to '\(target)'", .fails(.refused, "which is not allowed")) { _ in
                [.redirect(to: target)]
            }
        } + [
            .answers("redirects nowhere", .fails(.refused, "without 'Location'")) { _ in
                [.status(302)]
            }
            .on([.manifest, .archive, .index, .bundle]),
            .answers("redirects to itself", .fails(.refused, "more than 10 redirects")) { served in
                [.redirect(to: served.path)]
            }
            .on([.manifest, .archive, .index, .bundle, .range, .delta]),
            .answers("redirects to an empty address", .fails(.refused, "without 'Location'")) { _ in
                [.redirect(to: "")]
            },
            .answers(
                "redirects to a closed port",
                .fails(.request, "connection refused by 127.0.0.1:1")
            ) { _ in
                [.redirect(to: "http://127.0.0.1:1/a")]
            },
            .answers("redirects to a name that is none", .fails(.request, "a.invalid")) { _ in
                [.redirect(to: "https://a.invalid/a")]
            },
            .answers("redirects to 100,000 characters", .fails(.refused, "its head has")) { _ in
                [.redirect(to: "/\(String(repeating: "a", count: 100_000))")]
            },
            .answers("redirects nine times, then behaves", .right) { served in
                (0..<9).map { _ in .redirect(to: served.path) } + [.content(served.content)]
            },
        ]

    private static let lengths: [Misbehaviour] =
        [
            "-5", "abc", "12abc", "0x10", "1e3", "", "9223372036854775808",
            "99999999999999999999999999", "1.5", "LENGTH, 7",
        ].map { value in
            let words = "sent an invalid response"
            return .head(
                "has the length '\(value)'",
                .fails(.refused, words),
                "200 OK",
                "Content-Length: \(value)"
            )
        } + [
            .head(
                "has two lengths",
                .fails(.refused, "two lengths"),
                "200 OK",
                "Content-Length: LENGTH",
                "Content-Length: 7"
            )
            .on([.manifest, .archive, .index, .bundle]),
            .head(
                "has its length twice",
                .right,
                "200 OK",
                "Content-Length: LENGTH",
                "Content-Length: LENGTH"
            ),
            .head(
                "has too short a length",
                .fails(.wrong, "found 10"),
                "200 OK",
                "Content-Length: 10"
            )
            .except(.manifest, .fails(.wrong, "not JSON"))
            .on([.manifest, .archive]),
            .head(
                "has too long a length",
                .fails(.wrong, "found 99999"),
                "200 OK",
                "Content-Length: 99999"
            )
            .except(.manifest, .fails(.request, "bytes missing")),
            .head(
                "has a length of 8 EiB",
                .fails(.wrong, "found 9223372036854775807"),
                "200 OK",
                "Content-Length: 9223372036854775807"
            )
            .except(.manifest, .fails(.refused, "larger than")),
            .head("has no length", .right, "200 OK").on(ServedResource.allCases),
        ]

    private static let chunks: [Misbehaviour] = [
        .chunked("comes in chunks", .right) { $0.chunks(of: 100) + Array("0\r\n\r\n".utf8) }
            .on(ServedResource.allCases),
        .bytes("has a length and chunks", .right) { served in
            let lines = ["Content-Length: 7", "Transfer-Encoding: chunked"]
            return Array(StagePackCommandTests.head("200 OK", lines).utf8)
                + served.chunks(of: 1000) + Array("0\r\n\r\n".utf8)
        },
        .chunked("has a chunk of 2^63 bytes", .fails(.request, "malformed chunked response")) {
            served in
            Array("8000000000000000\r\n".utf8) + served.content
        },
        .chunked("has a size of 17 digits", .fails(.request, "malformed chunked response")) {
            served in
            Array("10000000000000000\r\n".utf8) + served.content
        },
        .chunked("has a size that is none", .fails(.request, "malformed chunked response")) { _ in
            Array("xyz\r\nabc\r\n".utf8)
        },
        .chunked("has a negative size", .fails(.request, "malformed chunked response")) { _ in
            Array("-5\r\nabcde\r\n".utf8)
        },
        .chunked("has an empty size", .fails(.request, "malformed chunked response")) { _ in
            Array("\r\n\r\n".utf8)
        },
        .chunked("lacks the last chunk", .fails(.request, "closed")) { $0.chunks(of: 100) }
            // By then, all frames have been received.
            .except(.bundle, .right).on([.manifest, .index, .bundle]),
        .chunked("lacks line ends", .fails(.request, "malformed chunked response")) { served in
            Array("5\r\n".utf8) + served.content.prefix(5) + Array("5\r\nabcde0\r\n\r\n".utf8)
        },
        .chunked("has long extensions", .right) { served in
            served.chunks(of: 1000, extension: ";a=\(String(repeating: "x", count: 5000))")
                + Array("0\r\n\r\n".utf8)
        },
        .chunked("has trailers", .right) { served in
            served.chunks(of: 1000) + Array("0\r\nX-Sum: 1\r\nContent-Length: 3\r\n\r\n".utf8)
        },
        .head(
            "has an unknown transfer encoding",
            .fails(.refused, "is not known"),
            "200 OK",
            "Transfer-Encoding: foo"
        ),
    ]

    private static let encodings: [Misbehaviour] =
        ["gzip", "br", "deflate", "zstd", "foo", "gzip, gzip", "GZIP"].map { name in
            .answers("encodes as \(name)", .fails(.refused, "the encoding '\(name)'")) { served in
                [.content(served.content).chunked().field("Content-Encoding", name)]
            }
            .on(name == "gzip" ? [.manifest, .archive, .index, .bundle] : [.archive])
        } + [
            .answers("calls its compression an encoding", .right) { served in
                [.content(served.content).field("Content-Encoding", "x-gzip")]
            }
            .on([.archive]),
            .answers("encodes as identity", .right) { served in
                [.content(served.content).field("Content-Encoding", "identity")]
            }
            .on(ServedResource.documents),
            .answers("has an empty encoding", .right) { served in
                [.content(served.content).field("Content-Encoding", "")]
            }
            .on([.manifest, .archive, .index, .bundle, .range]),
            .answers("sends a bomb", .fails(.refused, "the encoding 'gzip'")) { _ in
                // The compressed size of 10 GiB of zeros.
                [.content(noise(10 << 20)).field("Content-Encoding", "gzip")]
            },
        ]
}

extension Misbehaviour {
    /// Returns the same response with all its length, and only `count` bytes of the content.
    fileprivate func cut(keeping count: Int) -> Misbehaviour {
        .bytes(name, outcome) { Array($0.correct().dropLast($0.content.count - count)) }
    }

    /// A server that sends a head for chunks, then these bytes, and closes the connection.
    fileprivate static func chunked(
        _ name: String,
        _ outcome: RunOutcome,
        _ body: @escaping @Sendable (Served) -> [UInt8]
    ) -> Misbehaviour {
        bytes(name, outcome) { served in
            let lines = ["Transfer-Encoding: chunked"]
            return Array(StagePackCommandTests.head("200 OK", lines).utf8) + body(served)
        }
    }
}
