import StageModel
import Testing

@testable import StageTransfer

/// Resumable uploads by tus 1.0.
extension ResumableUploadTests {
    @Test func aTusUploadIsCreatedSentAndEnded() {
        var machine = machine(.tus)
        #expect(machine.begin() == .create)
        let created = machine.handle(
            head(201, "Tus-Resumable: 1.0.0", "Location: /u/1"),
            from: origin,
            isBodySent: true
        )
        #expect(created == .perform(.append(url, from: 0)))
        #expect(machine.resource == resource(.tus))
        machine.noteSent(to: 100)
        #expect(handle(&machine, head(204, "Upload-Offset: 100"), isBodySent: true) == .deliver)
    }

    @Test func aTusUploadResumes() {
        var machine = machine(.tus, at: resource(.tus, offset: 10))
        #expect(machine.begin() == .queryOffset(url))
        #expect(
            handle(&machine, head(200, "Upload-Offset: 20")) == .perform(.append(url, from: 20))
        )
        // The server received less than was sent.
        machine.noteSent(to: 30)
        let part = handle(&machine, head(204, "Upload-Offset: 30"), isBodySent: true)
        #expect(part == .perform(.queryOffset(url)))
        #expect(
            handle(&machine, head(200, "Upload-Offset: 30")) == .perform(.append(url, from: 30))
        )
        #expect(handle(&machine, head(409)) == .perform(.queryOffset(url)))
        #expect(handle(&machine, head(200, "Upload-Offset: 100")) == .fail(tooFar))
        var complete = self.machine(.tus, at: resource(.tus, mayBeComplete: true))
        _ = complete.begin()
        #expect(handle(&complete, head(200, "Upload-Offset: 100")) == .deliver)
    }

    private var tooFar: TransferError {
        .unacceptable(
            url: url.display,
            .answer("'Upload-Offset: 100' after 30 bytes were sent")
        )
    }

    /// A server may discard the body of a request that breaks off.
    @Test func aTusUploadGoesInParts() {
        let size: Int64 = 3 << 20 + 1
        var machine = machine(.tus, size: size)
        _ = machine.begin()
        _ = machine.handle(
            head(201, "Tus-Resumable: 1.0.0", "Location: /u/1"),
            from: origin,
            isBodySent: true
        )
        for part in 1...3 {
            let end = Int64(part) << 20
            #expect(machine.end(ofPartAt: end - 1 << 20) == end)
            machine.noteSent(to: end)
            let answer = head(204, "Upload-Offset: \(end)")
            let action = handle(&machine, answer, isBodySent: true)
            #expect(action == .perform(.append(url, from: end)))
            #expect(machine.hasProgressed)
        }
        #expect(machine.end(ofPartAt: 3 << 20) == size)
        machine.noteSent(to: size)
        let last = head(204, "Upload-Offset: \(size)")
        #expect(handle(&machine, last, isBodySent: true) == .deliver)
        let large = self.machine(.tus) { $0.size = 1 << 40 }
        #expect(large.end(ofPartAt: 0) == 1 << 31)
        #expect(self.machine { $0.size = size }.end(ofPartAt: 5) == size)
    }

    @Test func aTusUploadThatIsGoneIsCreatedAgain() {
        var machine = machine(.tus, at: resource(.tus))
        _ = machine.begin()
        #expect(handle(&machine, head(410)) == .perform(.create))
    }

    @Test(arguments: [
        ["Location: http://a.example/u"], ["Location: https://b.example/u"],
        ["Location: /\(String(repeating: "u", count: 4096))"], [],
    ])
    func aTusUploadIsCreatedWhereARedirectMayLead(fields: [String]) {
        var machine = machine(.tus) { $0.rules.allowed = AllowedDomains(["a.example"]) }
        _ = machine.begin()
        var created = head(201, "Tus-Resumable: 1.0.0")
        for field in fields { created.read(field[...]) }
        guard
            case .fail(.unacceptable) = machine.handle(created, from: origin, isBodySent: true)
        else {
            Issue.record("expected a refusal")
            return
        }
    }

    @Test func theRefusalOfATusUploadIsTheAnswer() {
        for status in [400, 404, 413] {
            var machine = machine(.tus)
            _ = machine.begin()
            #expect(handle(&machine, head(status), isBodySent: true) == .deliver)
        }
        var machine = machine(.tus)
        _ = machine.begin()
        let error = TransferError.refused(url: url.display, status: 503)
        #expect(handle(&machine, head(503), isBodySent: true) == .retry(error, after: nil))
    }

    @Test func aServerThatDoesNotSpeakTusIsNone() {
        var machine = machine(.tus)
        _ = machine.begin()
        let created = machine.handle(head(201, "Location: /u/1"), from: origin, isBodySent: true)
        guard case .fail(.unacceptable(_, .answer(let detail))) = created else {
            Issue.record("expected a refusal")
            return
        }
        #expect(detail.contains("'Tus-Resumable'"))
    }

    /// The creation is the whole request, and is repeated like one.
    @Test func theCreationOfAnEmptyTusUploadMayHaveBeenActedOn() {
        for isIdempotent in [true, false] {
            var machine = machine(.tus, size: 0) { $0.repeatsTransientAnswers = isIdempotent }
            _ = machine.begin()
            let action = machine.handle(head(503), from: origin, isBodySent: true)
            let error = TransferError.refused(url: origin.display, status: 503)
            #expect(action == (isIdempotent ? .retry(error, after: nil) : .deliver))
        }
    }

    @Test func aPartThatWasNotSentIsNotBelieved() {
        var machine = machine(.tus, at: resource(.tus))
        _ = machine.begin()
        _ = handle(&machine, head(200, "Upload-Offset: 0"))
        let early = head(204, "Upload-Offset: 100")
        #expect(handle(&machine, early, isBodySent: false) == .perform(.queryOffset(url)))
    }

    @Test func anEmptyTusUploadEndsWithItsCreation() {
        var machine = machine(.tus) { $0.size = 0 }
        #expect(machine.begin() == .create)
        let created = machine.handle(
            head(201, "Tus-Resumable: 1.0.0", "Location: /u/1"),
            from: origin,
            isBodySent: true
        )
        #expect(created == .deliver)
    }
}
