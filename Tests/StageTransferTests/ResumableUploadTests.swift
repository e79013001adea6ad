import StageModel
import Testing

@testable import StageTransfer

/// The decisions of an upload that resumes, without any server.
@Suite struct ResumableUploadTests {
    private let origin: TransferURL
    private let place: TransferURL

    init() throws {
        origin = try TransferURL("https://a.example/in")
        place = try TransferURL("https://a.example/u/1")
    }

    private func machine(
        _ uploadProtocol: UploadProtocol = .resumable,
        at resource: UploadResource? = nil,
        _ change: (inout ResumableUpload.Terms) -> Void = { _ in }
    ) -> ResumableUpload {
        var terms = ResumableUpload.Terms(uploadProtocol: uploadProtocol, size: 100)
        change(&terms)
        return ResumableUpload(terms, resource: resource)
    }

    private func head(_ status: Int, _ fields: String...) -> ResponseHead {
        var head = ResponseHead(status: status)
        for field in fields { head.read(field[...]) }
        return head
    }

    /// A machine whose request was sent, up to an offset, and answered with the resource.
    private func begun(
        sent: Int64 = 50,
        _ change: (inout ResumableUpload.Terms) -> Void = { _ in }
    ) -> ResumableUpload {
        var machine = machine(.resumable, at: nil, change)
        #expect(machine.begin() == .request)
        #expect(machine.take(interim: head(104, "Location: /u/1"), from: origin) != nil)
        machine.noteSent(to: sent)
        return machine
    }

    private func resource(
        _ uploadProtocol: UploadProtocol = .resumable,
        offset: Int64 = 0,
        mayBeComplete: Bool = false
    ) -> UploadResource {
        var resource = UploadResource(url: place.text, uploadProtocol: uploadProtocol)
        resource.offset = ByteCount(offset)
        resource.mayBeComplete = mayBeComplete
        return resource
    }

    private func handle(
        _ machine: inout ResumableUpload,
        _ answer: ResponseHead,
        isBodySent: Bool = false
    ) -> ResumableUpload.Action {
        machine.handle(answer, from: place, isBodySent: isBodySent)
    }

    // MARK: the draft

    @Test func aServerThatOffersNothingIsAskedOnce() {
        for status in [200, 201, 404, 409, 500, 503] {
            var machine = machine()
            #expect(machine.begin() == .request)
            #expect(handle(&machine, head(status), isBodySent: true) == .endAttempt)
            #expect(machine.begin() == .request)
        }
    }

    @Test func theFirstResourceCounts() {
        var machine = machine()
        #expect(machine.begin() == .request)
        let offer = head(104, "Upload-Draft-Interop-Version: 6", "Location: /u/1")
        #expect(machine.take(interim: offer, from: origin) == resource())
        #expect(machine.take(interim: offer, from: origin) == nil)
        #expect(machine.take(interim: head(104, "Location: /u/2"), from: origin) == nil)
        #expect(machine.resource == resource())
        #expect(machine.begin() == .find(place))
    }

    @Test(arguments: [
        ["Location: http://a.example/u"], ["Location: file:///etc/passwd"],
        ["Location: https://b.example/u"], [],
        ["Upload-Draft-Interop-Version: 7", "Location: /u/1"],
        ["Location: /\(String(repeating: "u", count: 4096))"],
    ])
    func aResourceWhereNoRedirectMayLeadIsPassedOver(fields: [String]) {
        var machine = machine { $0.rules.allowed = AllowedDomains(["a.example"]) }
        _ = machine.begin()
        var offer = head(104)
        for field in fields { offer.read(field[...]) }
        #expect(machine.take(interim: offer, from: origin) == nil)
        #expect(machine.begin() == .request)
    }

    @Test func nothingIsTakenThatWasNotAskedFor() {
        for other in [UploadProtocol.plain, .tus] {
            var machine = machine(other)
            _ = machine.begin()
            #expect(machine.take(interim: head(104, "Location: /u/1"), from: origin) == nil)
        }
        var empty = machine { $0.size = 0 }
        _ = empty.begin()
        #expect(!empty.announces)
        #expect(empty.take(interim: head(104, "Location: /u/1"), from: origin) == nil)
    }

    @Test func theBodyGoesOnWhereTheServerHasIt() {
        var machine = begun(sent: 50)
        #expect(machine.begin() == .find(place))
        let told = head(204, "Upload-Offset: 40", "Upload-Complete: ?0")
        #expect(handle(&machine, told) == .perform(.append(place, from: 40)))
        #expect(machine.hasProgressed)
        #expect(machine.resource == resource(offset: 40))
        machine.noteSent(to: 100)
        #expect(handle(&machine, head(201), isBodySent: true) == .deliver)
    }

    @Test func anEarlierProcessLeavesTheResource() {
        var machine = machine(at: resource(offset: 40))
        #expect(machine.begin() == .find(place))
        let told = head(204, "Upload-Offset: 60", "Upload-Complete: ?0")
        #expect(handle(&machine, told) == .perform(.append(place, from: 60)))
        var other = self.machine(.tus, at: resource())
        #expect(other.begin() == .create)
    }

    @Test func anOffsetMayGoBackAndIsNoProgressThen() {
        var machine = machine(at: resource(offset: 40))
        _ = machine.begin()
        #expect(
            handle(&machine, head(204, "Upload-Offset: 30")) == .perform(.append(place, from: 30))
        )
        #expect(!machine.hasProgressed)
        machine.noteSent(to: 60)
        _ = machine.begin()
        #expect(
            handle(&machine, head(204, "Upload-Offset: 40")) == .perform(.append(place, from: 40))
        )
        #expect(!machine.hasProgressed)
    }

    @Test(arguments: [
        "Upload-Offset: 51", "Upload-Offset: 101", "Upload-Offset: -1", "Upload-Offset: x",
        "Upload-Offset: 9223372036854775808", "X: 1",
    ])
    func anOffsetThatCannotBeIsAnError(field: String) {
        var machine = begun(sent: 50)
        _ = machine.begin()
        guard case .fail(.unacceptable(_, .answer)) = handle(&machine, head(204, field)) else {
            Issue.record("expected a refusal of '\(field)'")
            return
        }
    }

    @Test func anUploadThatIsCompleteEndsWithThatAnswer() {
        var machine = begun(sent: 100)
        _ = machine.begin()
        let told = head(204, "Upload-Offset: 100", "Upload-Complete: ?1")
        #expect(handle(&machine, told) == .deliver)
        var short = begun(sent: 100)
        _ = short.begin()
        guard case .fail = handle(&short, head(204, "Upload-Offset: 9", "Upload-Complete: ?1"))
        else {
            Issue.record("expected a refusal")
            return
        }
        // Everything is there, and the server was not told that this is all.
        var open = begun(sent: 100)
        _ = open.begin()
        let action = handle(&open, head(204, "Upload-Offset: 100", "Upload-Complete: ?0"))
        #expect(action == .perform(.append(place, from: 100)))
    }

    @Test(arguments: [404, 410, 400, 405]) func aResourceThatIsGoneIsBegunAnewOnce(status: Int) {
        var machine = begun(sent: 99)
        _ = machine.begin()
        #expect(handle(&machine, head(status)) == .perform(.request))
        #expect(machine.resource == nil)
        _ = machine.take(interim: head(104, "Location: /u/2"), from: origin)
        let error = TransferError.refused(url: place.display, status: 503)
        #expect(handle(&machine, head(503)) == .retry(error, after: nil))
    }

    @Test(arguments: [true, false]) func whatMayBeCompleteIsNotBegunAnew(isRepeatedSafely: Bool) {
        var sent = begun(sent: 100) { $0.isRepeatedSafely = isRepeatedSafely }
        var kept = machine(at: resource(mayBeComplete: true)) {
            $0.isRepeatedSafely = isRepeatedSafely
        }
        for action in [gone(&sent), gone(&kept)] {
            if isRepeatedSafely {
                #expect(action == .perform(.request))
            } else if case .fail(.unreachable(_, let detail)) = action {
                #expect(detail.contains("may have acted on"))
            } else {
                Issue.record("expected a failure, found \(action)")
            }
        }
    }

    private func gone(_ machine: inout ResumableUpload) -> ResumableUpload.Action {
        _ = machine.begin()
        return handle(&machine, head(404))
    }

    @Test(arguments: [200, 404, 409, 422, 500, 503])
    func theAnswerToTheWholeBodyIsTheUploads(status: Int) {
        var machine = begun(sent: 100)
        #expect(handle(&machine, head(status), isBodySent: true) == .deliver)
        // Servers may tell the offset with it.
        machine = begun(sent: 100)
        let told = head(status, "Upload-Offset: 100")
        #expect(handle(&machine, told, isBodySent: true) == .deliver)
        machine = begun(sent: 50)
        #expect(handle(&machine, head(status, "Upload-Complete: ?1")) == .deliver)
    }

    @Test func anIdempotentRequestIsBegunAnewAfterAnAnswerThatPasses() {
        var machine = begun(sent: 100) {
            ($0.isRepeatedSafely, $0.repeatsTransientAnswers) = (true, true)
        }
        let error = TransferError.refused(
            url: place.display,
            status: 503,
            retryAfter: .seconds(3)
        )
        let answer = head(503, "Retry-After: 3")
        #expect(handle(&machine, answer, isBodySent: true) == .retry(error, after: .seconds(3)))
        #expect(machine.begin() == .request)
    }

    @Test func anAnswerBeforeTheEndOfTheBodyMayPass() {
        var machine = begun(sent: 50)
        let error = TransferError.refused(url: place.display, status: 503)
        #expect(handle(&machine, head(503)) == .retry(error, after: nil))
        machine = begun(sent: 50) { $0.acceptsTransientResponses = true }
        #expect(handle(&machine, head(503)) == .endAttempt)
        machine = begun(sent: 50)
        #expect(handle(&machine, head(413)) == .endAttempt)
    }

    @Test func anotherOffsetIsAskedForSoOftenAndNoMore() {
        var machine = machine(at: resource())
        #expect(machine.begin() == .find(place))
        for round in 0...2 {
            let action = handle(&machine, head(204, "Upload-Offset: 0"))
            #expect(action == .perform(.append(place, from: 0)))
            let conflict = handle(&machine, head(409, "Upload-Offset: 0"))
            if round < 2 {
                #expect(conflict == .perform(.find(place)))
            } else if case .retry(.unreachable, nil) = conflict {
            } else {
                Issue.record("expected the end of the attempt, found \(conflict)")
            }
        }
    }

    @Test(arguments: [401, 407]) func aChallengeIsAnAnswer(status: Int) {
        var machine = machine(at: resource())
        _ = machine.begin()
        #expect(handle(&machine, head(status)) == .deliver)
        #expect(machine.begin() == .find(place))
    }

    @Test(arguments: [true, false], [401, 407])
    func aRequestThatIsChallengedBeginsAnew(isBodySent: Bool, status: Int) {
        var machine = begun(sent: 100)
        let answer = head(status, "Upload-Offset: 100")
        #expect(handle(&machine, answer, isBodySent: isBodySent) == .deliver)
        #expect(machine.begin() == .request)
    }

    // MARK: tus

    @Test func aTusUploadIsCreatedSentAndEnded() {
        var machine = machine(.tus)
        #expect(machine.begin() == .create)
        let created = machine.handle(head(201, "Location: /u/1"), from: origin, isBodySent: true)
        #expect(created == .perform(.append(place, from: 0)))
        #expect(machine.resource == resource(.tus))
        machine.noteSent(to: 100)
        #expect(handle(&machine, head(204, "Upload-Offset: 100"), isBodySent: true) == .deliver)
    }

    @Test func aTusUploadResumes() {
        var machine = machine(.tus, at: resource(.tus, offset: 10))
        #expect(machine.begin() == .find(place))
        #expect(
            handle(&machine, head(200, "Upload-Offset: 20")) == .perform(.append(place, from: 20))
        )
        // The server took less than was sent.
        machine.noteSent(to: 30)
        let part = handle(&machine, head(204, "Upload-Offset: 30"), isBodySent: true)
        #expect(part == .perform(.find(place)))
        #expect(
            handle(&machine, head(200, "Upload-Offset: 30")) == .perform(.append(place, from: 30))
        )
        #expect(handle(&machine, head(409)) == .perform(.find(place)))
        #expect(handle(&machine, head(200, "Upload-Offset: 100")) == .fail(tooFar))
        var complete = self.machine(.tus, at: resource(.tus, mayBeComplete: true))
        _ = complete.begin()
        #expect(handle(&complete, head(200, "Upload-Offset: 100")) == .deliver)
    }

    private var tooFar: TransferError {
        .unacceptable(
            url: place.display,
            .answer("'Upload-Offset: 100' after 30 bytes were sent")
        )
    }

    /// A server may keep nothing of a request that breaks off.
    @Test func aTusUploadGoesInParts() {
        let size: Int64 = 3 << 20 + 1
        var machine = machine(.tus) { $0.size = size }
        _ = machine.begin()
        _ = machine.handle(head(201, "Location: /u/1"), from: origin, isBodySent: true)
        for part in 1...3 {
            let end = Int64(part) << 20
            #expect(machine.end(ofPartAt: end - 1 << 20) == end)
            machine.noteSent(to: end)
            let answer = head(204, "Upload-Offset: \(end)")
            let action = handle(&machine, answer, isBodySent: true)
            #expect(action == .perform(.append(place, from: end)))
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
        var created = head(201)
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
        let error = TransferError.refused(url: place.display, status: 503)
        #expect(handle(&machine, head(503), isBodySent: true) == .retry(error, after: nil))
    }

    @Test func anEmptyTusUploadEndsWithItsCreation() {
        var machine = machine(.tus) { $0.size = 0 }
        #expect(machine.begin() == .create)
        let created = machine.handle(head(201, "Location: /u/1"), from: origin, isBodySent: true)
        #expect(created == .deliver)
    }
}
