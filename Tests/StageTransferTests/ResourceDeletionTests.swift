import StageModel
import StageTesting
import Testing

@testable import StageTransfer

/// Requests that delete the resource of a cancelled upload.
@Suite struct ResourceDeletionTests {
    private let server: UploadServer

    init() throws { server = try UploadServer() }

    private func delete(
        _ uploadProtocol: UploadProtocol = .resumable,
        at url: String? = nil,
        within timeout: Duration = .seconds(120),
        _ change: (inout UploadRequest, inout UploadResource) -> Void = { _, _ in }
    ) async throws -> Int? {
        var request = UploadRequest(url: server.url("/in"))
        request.fields = ["Authorization: x", "Content-Type: a/b"]
        var resource = UploadResource(
            url: url ?? server.url("/uploads/1"),
            uploadProtocol: uploadProtocol
        )
        change(&request, &resource)
        let (upload, target) = (request, resource)
        return try await withEngine(.impatient) { engine in
            await engine.delete(target, of: upload, timeout: timeout)
        }
    }

    @Test(arguments: [
        (UploadProtocol.resumable, "upload-draft-interop-version", "6"),
        (.tus, "tus-resumable", "1.0.0"),
    ])
    func theRequestIsOfTheProtocol(
        _ uploadProtocol: UploadProtocol,
        name: String,
        value: String
    ) async throws {
        #expect(try await delete(uploadProtocol) == 404)
        let head = try #require(server.requests.first)
        #expect(head.method == "DELETE" && head.target == "/uploads/1")
        #expect(head[name] == value && head["authorization"] == "x")
        #expect(head["content-type"] == nil && head["content-length"] == nil)
        #expect(server.requests.count == 1)
    }

    @Test func nothingIsSentToAnotherOrigin() async throws {
        let other = server.url("/uploads/1", host: "localhost")
        #expect(try await delete(at: other) == nil)
        #expect(try await delete { _, resource in resource.isNamedByOrigin = false } == nil)
        let domains = AllowedDomains(["a.example"])
        #expect(try await delete { request, _ in request.allowedDomains = domains } == nil)
        #expect(server.methods == [])
    }

    @Test func nothingIsDeletedThatAServerMayHaveActedOn() async throws {
        #expect(try await delete { _, resource in resource.mayBeComplete = true } == nil)
        #expect(try await delete(.plain) == nil)
        #expect(server.methods == [])
    }

    @Test func aRedirectIsNotFollowed() async throws {
        let other = try UploadServer()
        let target = other.url("/uploads/1")
        server.replace { _ in
            "HTTP/1.1 307 There\r\nLocation: \(target)\r\nContent-Length: 0\r\n\r\n"
        }
        #expect(try await delete() == 307)
        #expect(other.methods == [])
    }

    /// The cancelled request may keep the resource locked for a moment.
    @Test func aLockedResourceIsDeletedLater() async throws {
        server.replace { [server] _ in
            let isFirst = server.requests.count == 1
            return "HTTP/1.1 \(isFirst ? 423 : 204) Status\r\n"
                + (isFirst ? "Content-Length: 0\r\n" : "") + "\r\n"
        }
        #expect(try await delete() == 204)
        #expect(server.methods == ["DELETE", "DELETE"])
    }

    @Test func aServerThatIsAlwaysLockedIsGivenUp() async throws {
        server.replace { _ in "HTTP/1.1 423 Locked\r\nContent-Length: 0\r\n\r\n" }
        // On a busy machine, the time may end before the engine has sent a request.
        try await poll("no request is sent") {
            let status = try await delete(within: .milliseconds(1500))
            #expect(status == nil)
            return !server.methods.isEmpty
        }
    }
}
