import Glibc
import Logging
import StageModel
import StageTesting
import Synchronization
import Testing

@testable import StageOrigin

@Suite(.tree, .serialized)
struct OriginTests {
    static let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
    /// The tag of `digits.txt`: its digest, as sha256sum(1) prints it.
    static let tag = "\"84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882\""

    static func serve(
        _ configuration: OriginConfiguration = OriginConfiguration(),
        _ body: (Int) async throws -> Void
    ) async throws {
        try await withOrigin(TreeTrait.path, configuration: configuration, logger: quiet) {
            try await body($0.port)
        }
    }

    static func get(
        _ path: String,
        _ fields: [String: String] = [:]
    ) async throws
        -> LoopbackClient.Reply
    {
        var reply = LoopbackClient.Reply()
        try await serve { reply = try await LoopbackClient(port: $0).request("GET", path, fields) }
        return reply
    }

    @Test
    func aFileComesWholeWithItsValidators() async throws {
        let reply = try await Self.get("/digits.txt")
        #expect(reply.status == 200 && reply.isComplete)
        #expect(reply.body == Array("0123456789".utf8))
        #expect(reply.fields["etag"] == Self.tag)
        #expect(reply.fields["accept-ranges"] == "bytes")
        #expect(reply.fields["content-type"] == "text/plain; charset=utf-8")
        #expect(reply.fields["last-modified"] != nil)
        #expect(reply.fields["date"] != nil)
    }

    static let ranges: [([String: String], Int, String, String?)] = [
        (["Range": "bytes=2-4"], 206, "234", "bytes 2-4/10"),
        (["Range": "bytes=7-"], 206, "789", "bytes 7-9/10"),
        (["Range": "bytes=-2"], 206, "89", "bytes 8-9/10"),
        (["Range": "bytes=0-1,4-5"], 200, "0123456789", nil),
        (["Range": "bytes=x"], 200, "0123456789", nil),
        (["Range": "bytes=10-"], 416, "416 Range Not Satisfiable\n", "bytes */10"),
        (["Range": "bytes=2-4", "If-Range": tag], 206, "234", "bytes 2-4/10"),
        (["Range": "bytes=2-4", "If-Range": "W/\(tag)"], 200, "0123456789", nil),
        (["Range": "bytes=2-4", "If-Range": "\"other\""], 200, "0123456789", nil),
        (["If-Match": "\"other\""], 412, "412 Precondition Failed\n", nil),
        (["If-Match": tag, "Range": "bytes=9-9"], 206, "9", "bytes 9-9/10"),
        (
            ["If-Unmodified-Since": "Sun, 06 Nov 1994 08:49:37 GMT"], 412,
            "412 Precondition Failed\n", nil
        ),
        (["If-None-Match": tag], 304, "", nil),
        (["If-None-Match": "W/\(tag), \"other\"", "Range": "bytes=2-4"], 304, "", nil),
        (["If-None-Match": "\"other\""], 200, "0123456789", nil),
    ]

    @Test
    func rangesAndConditionsAreHonored() async throws {
        try await Self.serve { port in
            let client = try LoopbackClient(port: port)
            // All requests use one connection: a wrong length would spoil the next reply.
            for (fields, status, body, range) in Self.ranges {
                let reply = await client.request("GET", "/digits.txt", fields)
                #expect(reply.status == status, "\(fields)")
                #expect(String(decoding: reply.body, as: UTF8.self) == body, "\(fields)")
                #expect(reply.fields["content-range"] == range, "\(fields)")
            }
        }
    }

    @Test
    func headSaysWhatGetWouldAndSendsNothing() async throws {
        try await Self.serve { port in
            let client = try LoopbackClient(port: port)
            for _ in 0..<2 {
                let reply = await client.request("HEAD", "/digits.txt", ["Range": "bytes=1-2"])
                #expect(reply.status == 200 && reply.fields["content-length"] == "10")
                #expect(reply.fields["etag"] == Self.tag)
            }
            #expect(await client.request("HEAD", "/").fields["content-length"] != "0")
            #expect(await client.request("GET", "/empty").fields["content-length"] == "0")
        }
    }

    @Test
    func hiddenOutsideAndMissingFilesAreNotFound() async throws {
        try await Self.serve { port in
            let client = try LoopbackClient(port: port)
            for path in [
                "/missing", "/.hidden", "/%2ehidden", "/packs/.git/config", "/../secret",
                "/%2e%2e/secret", "/..%2fsecret", "/packs/%2e%2e/%2e%2e/secret", "//etc/passwd",
                "/out", "/absolute", "/circle", "/nowhere", "/packs/out/secret", "/digits.txt/",
                "/digits.txt/a", "/%00",
            ] {
                let reply = await client.request("GET", path)
                #expect(reply.status == 404, "\(path)")
                #expect(reply.body == Array("404 Not Found\n".utf8), "\(path)")
            }
            #expect(await client.request("GET", "/inside").body.count == 10)
            #expect(await client.request("GET", "/packs/up?query").body.count == 10)
        }
    }

    @Test(arguments: ["POST", "PUT", "DELETE", "OPTIONS"])
    func otherMethodsAreNotAllowed(method: String) async throws {
        try await Self.serve { port in
            let reply = try await LoopbackClient(port: port).request(method, "/digits.txt")
            #expect(reply.status == 405 && reply.fields["allow"] == "GET, HEAD")
        }
    }

    @Test
    func aDirectoryIsListedAndItsAddressEndsWithASlash() async throws {
        try await Self.serve { port in
            let client = try LoopbackClient(port: port)
            let moved = await client.request("GET", "/packs")
            #expect(moved.status == 301 && moved.fields["location"] == "./packs/")
            let reply = await client.request("GET", "/packs/")
            let page = String(decoding: reply.body, as: UTF8.self)
            #expect(reply.fields["content-type"] == "text/html; charset=utf-8")
            #expect(page.contains("./a%20%3Cb%3E.zst") && page.contains("a &lt;b&gt;.zst"))
            #expect(page.contains(">up<") && !page.contains(".git") && !page.contains(">out<"))
        }
    }

    @Test
    func anEntityTagFollowsTheContentAlone() async throws {
        try await Self.serve { port in
            let client = try LoopbackClient(port: port)
            try TreeTrait.write("file", Array("aaaa".utf8))
            let first = await client.request("GET", "/file").fields["etag"]
            try TreeTrait.write("file", Array("bbbb".utf8))
            let second = await client.request("GET", "/file").fields["etag"]
            try TreeTrait.write("file", Array("aaaa".utf8))
            #expect(first != second)
            #expect(await client.request("GET", "/file").fields["etag"] == first)
        }
    }
}
