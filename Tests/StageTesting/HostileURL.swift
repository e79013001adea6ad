/// A URL that parsers interpret differently, and the server that every decision must derive from it.
package struct HostileURL: Sendable, CustomStringConvertible {
    /// The URL.
    package let text: String
    /// Scheme, host and port, or `nil` if the URL must be refused.
    package let origin: String?

    /// The URL as tests name it.
    package var description: String { text.debugDescription }

    private init(_ text: String, _ origin: String?) {
        self.text = text
        self.origin = origin
    }

    /// All URLs, the accepted ones first.
    package static let all: [HostileURL] = read + refused

    /// URLs that name one server, in unusual spellings.
    package static let read = [
        HostileURL("http://h/", "http://h:80"),
        HostileURL("HTTPS://H.Example/", "https://h.example:443"),
        HostileURL("http://h:/", "http://h:80"), HostileURL("http://h:0080/", "http://h:80"),
        HostileURL("http://h:65535", "http://h:65535"),
        HostileURL("http://h.example./", "http://h.example.:80"),
        HostileURL("http://h?@evil/", "http://h:80"), HostileURL("http://h#@evil/", "http://h:80"),
        HostileURL("http://h/@evil/", "http://h:80"),
        HostileURL("http://h/\\@evil/", "http://h:80"),
        HostileURL("http://u@h/", "http://h:80"), HostileURL("http://u:p@h:81/", "http://h:81"),
        HostileURL("http://evil%40x:p@h/", "http://h:80"), HostileURL("http://@h/", "http://h:80"),
        HostileURL("http://a_b-c.d/", "http://a_b-c.d:80"),
        HostileURL("http://xn--bcher-kva.example/", "http://xn--bcher-kva.example:80"),
        HostileURL("http://127.0.0.1/", "http://127.0.0.1:80"),
        HostileURL("http://[::1]:8080/", "http://[::1]:8080"),
        HostileURL("http://[0:0:0:0:0:0:0:1]/", "http://[::1]:80"),
        HostileURL("http://[2001:DB8:0:0:1:0:0:1]/", "http://[2001:db8::1:0:0:1]:80"),
        HostileURL("http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]:80"),
    ]

    /// URLs for which programs use different servers, or none.
    package static let refused = [
        "http://good@evil@h/", "http://good\\@evil/", "http://h\\.evil/", "http://h\t.evil/",
        "http://h\n.evil/", "http:// h/", " http://h/", "http://h /", "http://u p@h/",
        "http://a%2Eb/", "http://%68/", "http://h%00.evil/", "http://h%2F@evil:x/",
        "http://b\u{FC}cher.example/", "http://\u{FF4C}ocalhost/", "http://a\u{3002}b/",
        "http://\u{212A}.example/", "http://0x7f.1/", "http://0x7f000001/", "http://2130706433/",
        "http://0177.0.0.1/", "http://127.1/", "http://127.0.0.1./", "http://1.2.3.4.5/",
        "http://a.0x/", "http://127.0.0.01/", "http://256.0.0.1/", "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/", "http://[::1/", "http://[::1]evil/", "http://[127.0.0.1]/",
        "http://[::g]/", "http://[]/", "http://::1/", "http://h:80:81/", "http://h:65536/",
        "http://h:+80/", "http://h:8 0/", "http://h:x/", "http:h", "http:/h", "http:///h",
        "http://",
        "http://:80/", "http://u@/", "//h/", "h", "h:80", "http//h/", "http://.h/", "http://a..b/",
        "http://./", "http://h../", "http://a;b/", "http://a,b/", "http://a~b/", "ftp://h/", "",
    ].map { HostileURL($0, nil) }
}
