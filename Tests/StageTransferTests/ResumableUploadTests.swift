import StageModel
import Testing

@testable import StageTransfer

/// The decisions of a resumable upload, without a server.
@Suite struct ResumableUploadTests {
    let origin: TransferURL
    let url: TransferURL

    init() throws {
        origin = try TransferURL("https://a.example/in")
        url = try TransferURL("https://a.example/u/1")
    }

    func machine(
        _ uploadProtocol: UploadProtocol = .resumable,
        at resource: UploadResource? = nil,
        size: Int64 = 100,
        _ change: (inout ResumableUpload.Settings) -> Void = { _ in }
    ) -> ResumableUpload {
        var settings = ResumableUpload.Settings(uploadProtocol: uploadProtocol, size: size)
        change(&settings)
        return ResumableUpload(settings, resource: resource)
    }

    func head(_ status: Int, _ fields: String...) -> ResponseHead {
        var head = ResponseHead(status: status)
        for field in fields { head.read(field[...]) }
        return head
    }

    /// Returns a machine whose request was sent up to an offset, and whose server named the resource.
    func begun(
        sent: Int64 = 50,
        _ change: (inout ResumableUpload.Settings) -> Void = { _ in }
    ) -> ResumableUpload {
        var machine = machine(.resumable, at: nil, change)
        #expect(machine.begin() == .request)
        #expect(machine.take(interim: head(104, "Location: /u/1"), from: origin) != nil)
        machine.noteSent(to: sent)
        return machine
    }

    func resource(
        _ uploadProtocol: UploadProtocol = .resumable,
        offset: Int64 = 0,
        mayBeComplete: Bool = false
    ) -> UploadResource {
        var resource = UploadResource(url: url.text, uploadProtocol: uploadProtocol)
        resource.offset = ByteCount(offset)
        resource.mayBeComplete = mayBeComplete
        resource.size = ByteCount(100)
        return resource
    }

    func handle(
        _ machine: inout ResumableUpload,
        _ answer: ResponseHead,
        isBodySent: Bool = false
    ) -> ResumableUpload.Action {
        machine.handle(answer, from: url, isBodySent: isBodySent)
    }

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
        #expect(machine.begin() == .queryOffset(url))
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
        #expect(!empty.announcesResumption)
        #expect(empty.take(interim: head(104, "Location: /u/1"), from: origin) == nil)
    }

    @Test func theBodyContinuesWhereTheServerHasIt() {
        var machine = begun(sent: 50)
        #expect(machine.begin() == .queryOffset(url))
        let told = head(204, "Upload-Offset: 40", "Upload-Complete: ?0")
        #expect(handle(&machine, told) == .perform(.append(url, from: 40)))
        #expect(machine.resource == resource(offset: 40))
        machine.noteSent(to: 100)
        #expect(handle(&machine, head(201), isBodySent: true) == .deliver)
    }

    @Test func anEarlierProcessLeavesTheResource() {
        var machine = machine(at: resource(offset: 40))
        #expect(machine.begin() == .queryOffset(url))
        let told = head(204, "Upload-Offset: 60", "Upload-Complete: ?0")
        #expect(handle(&machine, told) == .perform(.append(url, from: 60)))
    }

    /// The configuration of a session may change between the attempts.
    @Test(arguments: [UploadProtocol.resumable, .tus], [UploadProtocol.plain, .tus, .resumable])
    func aResourceIsSpokenToInItsOwnProtocol(_ kept: UploadProtocol, _ wanted: UploadProtocol) {
        var machine = machine(wanted, at: resource(kept, mayBeComplete: true))
        #expect(machine.failure == nil)
        #expect(machine.begin() == .queryOffset(url))
        #expect(machine.uploadProtocol == kept)
        guard case .fail = handle(&machine, head(404)) else {
            Issue.record("expected a failure")
            return
        }
        // A new resource has the protocol of the configuration.
        machine = self.machine(wanted, at: resource(kept))
        _ = machine.begin()
        let first = wanted == .tus ? ResumableUpload.Step.create : .request
        #expect(handle(&machine, head(404)) == .perform(first))
        #expect(machine.uploadProtocol == wanted)
    }

    @Test func aResourceThatCannotBeUsedIsNotPassedOver() {
        var foreign = resource()
        foreign.url = "https://b.example/u"
        var plain = resource(.plain)
        plain.url = ""
        var other = resource()
        other.size = ByteCount(101)
        for unusable in [foreign, plain, other] {
            var whole = unusable
            whole.mayBeComplete = true
            for isRepeatedSafely in [true, false] {
                func change(_ settings: inout ResumableUpload.Settings) {
                    settings.isRepeatedSafely = isRepeatedSafely
                    settings.rules.allowed = AllowedDomains(["a.example"])
                }
                var machine = machine(.resumable, at: unusable, change)
                #expect(machine.failure == nil)
                #expect(machine.begin() == .request)
                machine = self.machine(.resumable, at: whole, change)
                #expect((machine.failure == nil) == isRepeatedSafely)
                #expect(machine.resource == nil)
            }
        }
    }

    @Test func aRedirectLeavesTheFirstServersResource() {
        var machine = begun(sent: 100)
        machine.noteRedirect(isAtOrigin: false)
        #expect(machine.resource == nil)
        let offer = head(104, "Location: https://b.example/u")
        #expect(machine.take(interim: offer, from: origin)?.url == "https://b.example/u")
        #expect(machine.resource?.isNamedByOrigin == false)
        // A redirect of the request for the offset leads to the same upload.
        machine = self.machine(at: resource())
        _ = machine.begin()
        machine.noteRedirect(isAtOrigin: false)
        #expect(machine.resource == resource())
    }

    /// Requests the offset once more, and returns whether that is progress.
    private func hasProgressed(_ machine: inout ResumableUpload, to offset: Int64) -> Bool {
        _ = machine.begin()
        machine.noteSent(to: offset)
        let action = handle(&machine, head(204, "Upload-Offset: \(offset)"))
        #expect(action == .perform(.append(url, from: offset)))
        return machine.hasProgressed
    }

    @Test func progressIsManyBytesOrTheEnd() {
        let size: Int64 = 1 << 20
        var kept = resource(offset: 1000)
        kept.size = ByteCount(size)
        var machine = machine(at: kept, size: size)
        #expect(!hasProgressed(&machine, to: 900))
        #expect(!hasProgressed(&machine, to: 1000))
        #expect(!hasProgressed(&machine, to: 1001))
        #expect(!hasProgressed(&machine, to: 1000 + 256 << 10 - 1))
        #expect(hasProgressed(&machine, to: 1000 + 256 << 10))
        #expect(!hasProgressed(&machine, to: 1000 + 256 << 10))
        #expect(hasProgressed(&machine, to: size - 1))
        #expect(hasProgressed(&machine, to: size))
        #expect(!hasProgressed(&machine, to: size))
    }

    @Test func aNewResourceMakesProgressBeyondTheLastOne() {
        let size: Int64 = 1 << 20
        var machine = machine(.resumable, size: size)
        for _ in 1...2 {
            #expect(machine.begin() == .request)
            _ = machine.take(interim: head(104, "Location: /u/1"), from: origin)
            machine.noteSent(to: size / 2)
            _ = hasProgressed(&machine, to: size / 2)
            // The next attempt finds the resource deleted.
            _ = machine.begin()
            #expect(!machine.hasProgressed)
            #expect(handle(&machine, head(404)) == .perform(.request))
        }
        _ = machine.take(interim: head(104, "Location: /u/1"), from: origin)
        #expect(!hasProgressed(&machine, to: size / 2))
        #expect(hasProgressed(&machine, to: size))
    }

    @Test(arguments: [
        "Upload-Offset: 51", "Upload-Offset: 101", "Upload-Offset: -1", "Upload-Offset: x",
        "Upload-Offset: 9223372036854775808", "Upload-Offset:",
    ])
    func anOffsetThatCannotBeIsAnError(field: String) {
        var machine = begun(sent: 50)
        _ = machine.begin()
        guard case .fail(.unacceptable(_, .answer)) = handle(&machine, head(204, field)) else {
            Issue.record("expected a refusal of '\(field)'")
            return
        }
    }

    /// A login page is not the server's final response.
    @Test(arguments: [UploadProtocol.resumable, .tus])
    func anAnswerWithoutAnOffsetMayPass(_ uploadProtocol: UploadProtocol) {
        var machine = machine(uploadProtocol, at: resource(uploadProtocol))
        _ = machine.begin()
        guard case .retry(.unreachable, nil) = handle(&machine, head(200, "X: 1")) else {
            Issue.record("expected another attempt")
            return
        }
        #expect(machine.begin() == .queryOffset(url))
    }

    @Test(arguments: [
        ["Upload-Offset: 50;x", "Upload-Complete: ?0;x"], ["Upload-Offset: 50 ; x=1"],
    ])
    func fieldsMayHaveParameters(fields: [String]) {
        var machine = machine(at: resource())
        _ = machine.begin()
        var told = head(204)
        for field in fields { told.read(field[...]) }
        #expect(handle(&machine, told) == .perform(.append(url, from: 50)))
        machine.noteSent(to: 100)
        #expect(
            handle(&machine, head(200, "Upload-Complete: ?0;x")) == .perform(.queryOffset(url))
        )
    }

    /// According to the stored resource, the last bytes were never sent.
    @Test(arguments: [UploadProtocol.resumable, .tus])
    func aServerDoesNotHaveWhatWasNeverSent(_ uploadProtocol: UploadProtocol) {
        for mayBeComplete in [false, true] {
            for told in [["Upload-Offset: 100"], ["Upload-Offset: 100", "Upload-Complete: ?1"]] {
                let kept = resource(uploadProtocol, mayBeComplete: mayBeComplete)
                var machine = machine(uploadProtocol, at: kept) { $0.knowsLastBytes = true }
                _ = machine.begin()
                var answer = head(204)
                for field in told { answer.read(field[...]) }
                if case .fail(.unacceptable) = handle(&machine, answer) {
                    #expect(!mayBeComplete)
                } else {
                    #expect(mayBeComplete)
                }
            }
        }
    }

    @Test func aTusUploadHasTheLengthOfTheBody() {
        for (length, isRefused) in [("100", false), ("101", true), ("x", true)] {
            var machine = machine(.tus, at: resource(.tus))
            _ = machine.begin()
            let told = head(200, "Upload-Offset: 10", "Upload-Length: \(length)")
            let action = handle(&machine, told)
            if isRefused {
                guard case .fail(.unacceptable) = action else {
                    Issue.record("expected a refusal of '\(length)'")
                    continue
                }
            } else {
                #expect(action == .perform(.append(url, from: 10)))
            }
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
        // All bytes were received, but the server does not know that the upload is complete.
        var open = begun(sent: 100)
        _ = open.begin()
        let action = handle(&open, head(204, "Upload-Offset: 100", "Upload-Complete: ?0"))
        #expect(action == .perform(.append(url, from: 100)))
    }

    @Test(arguments: [404, 410, 400, 405, 501])
    func anUploadWhoseResourceIsGoneRestartsOnce(status: Int) {
        var machine = begun(sent: 99)
        _ = machine.begin()
        #expect(handle(&machine, head(status)) == .perform(.request))
        #expect(machine.resource == nil)
        _ = machine.take(interim: head(104, "Location: /u/2"), from: origin)
        let error = TransferError.refused(url: url.display, status: 503)
        #expect(handle(&machine, head(503)) == .retry(error, after: nil))
    }

    @Test(arguments: [UploadProtocol.resumable, .tus])
    func aLockIsAnAnswerWhereTransientOnesAre(_ uploadProtocol: UploadProtocol) {
        var machine = machine(uploadProtocol, at: resource(uploadProtocol)) {
            $0.acceptsTransientResponses = true
        }
        #expect(machine.begin() == .queryOffset(url))
        #expect(handle(&machine, head(423)) == .deliver)
        #expect(machine.begin() == .queryOffset(url))
        _ = handle(&machine, head(204, "Upload-Offset: 0"))
        #expect(handle(&machine, head(423)) == .deliver)
    }

    /// A request that broke off may keep the resource locked for a while.
    @Test(arguments: [UploadProtocol.resumable, .tus])
    func aLockedResourceIsKept(_ uploadProtocol: UploadProtocol) {
        var machine = machine(uploadProtocol, at: resource(uploadProtocol))
        let error = TransferError.refused(url: url.display, status: 423)
        #expect(machine.begin() == .queryOffset(url))
        #expect(handle(&machine, head(423)) == .retry(error, after: nil))
        #expect(machine.begin() == .queryOffset(url))
        #expect(
            handle(&machine, head(204, "Upload-Offset: 0")) == .perform(.append(url, from: 0))
        )
        #expect(handle(&machine, head(423)) == .retry(error, after: nil))
        #expect(machine.begin() == .queryOffset(url))
    }

    /// If the response to the request for the offset says nothing about the upload, the upload is unchanged.
    @Test(arguments: [403, 429, 500, 503, 507]) func aRefusalOfTheQuestionIsDelivered(status: Int) {
        var machine = machine(at: resource(mayBeComplete: true)) {
            $0.acceptsTransientResponses = true
        }
        _ = machine.begin()
        #expect(handle(&machine, head(status)) == .deliver)
        #expect(machine.resource == resource(mayBeComplete: true))
    }

    @Test(arguments: [301, 302, 303]) func aRedirectOfTheQuestionIsNoAnswer(status: Int) {
        var machine = machine(at: resource(mayBeComplete: true))
        _ = machine.begin()
        let error = TransferError.refused(url: url.display, status: status)
        #expect(handle(&machine, head(status, "Location: /login")) == .retry(error, after: nil))
    }

    @Test(arguments: [true, false])
    func anUploadThatMayBeCompleteIsNotRestarted(isRepeatedSafely: Bool) {
        var sent = begun(sent: 100) { $0.isRepeatedSafely = isRepeatedSafely }
        var kept = machine(at: resource(mayBeComplete: true)) {
            $0.isRepeatedSafely = isRepeatedSafely
        }
        for action in [gone(&sent), gone(&kept)] {
            if isRepeatedSafely {
                #expect(action == .perform(.request))
            } else if case .fail(.unreachable(_, _, let detail)) = action {
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
        // Servers may send the offset with this response.
        machine = begun(sent: 100)
        let told = head(status, "Upload-Offset: 100")
        #expect(handle(&machine, told, isBodySent: true) == .deliver)
        machine = begun(sent: 100)
        let complete = head(status, "Upload-Complete: ?1", "Upload-Offset: 100")
        #expect(handle(&machine, complete, isBodySent: true) == .deliver)
        // The application has not read more of the file.
        machine = begun(sent: 100)
        let early = head(status == 409 ? 422 : status, "Upload-Offset: 50")
        #expect(handle(&machine, early, isBodySent: true) == .deliver)
        machine = begun(sent: 50)
        let refused = handle(&machine, head(status, "Upload-Complete: ?1"))
        #expect(
            refused == ([200, 409].contains(status) ? .perform(.queryOffset(url)) : .deliver)
        )
    }

    @Test(
        arguments: [true, false],
        ["Upload-Offset: 50", "Upload-Offset: x", "Upload-Length: 50"]
    )
    func aClaimOfCompletenessIsChecked(isBodySent: Bool, field: String) {
        let isWhole = isBodySent && !field.hasSuffix("Offset: 50")
        for status in [200, 409] {
            var machine = begun(sent: isBodySent ? 100 : 50)
            let claim = head(status, "Upload-Complete: ?1", field)
            let action = handle(&machine, claim, isBodySent: isBodySent)
            #expect(action == (isWhole ? .deliver : .perform(.queryOffset(url))))
        }
        guard !isWhole else { return }
        // A success means that the server may have processed the request.
        var machine = begun(sent: 50)
        _ = handle(&machine, head(200, "Upload-Complete: ?1", field), isBodySent: isBodySent)
        guard case .fail = handle(&machine, head(404)) else {
            Issue.record("expected a failure")
            return
        }
    }

    @Test func aSuccessThatWasNotReadToItsEndIsAskedFor() {
        var machine = begun(sent: 50)
        let action = machine.handle(head(200), from: url, isBodySent: false, isCut: true)
        #expect(action == .perform(.queryOffset(url)))
        machine = begun(sent: 50)
        #expect(handle(&machine, head(200)) == .endAttempt)
    }

    /// A server may name the resource only in its final response.
    @Test func anAnswerThatIsNotCompleteNamesTheResource() {
        var machine = machine()
        _ = machine.begin()
        machine.noteSent(to: 100)
        let open = head(201, "Upload-Complete: ?0", "Location: /u/1")
        let action = machine.handle(open, from: origin, isBodySent: true)
        #expect(action == .perform(.queryOffset(url)))
        #expect(machine.resource == resource(mayBeComplete: true))
        var nameless = self.machine()
        _ = nameless.begin()
        guard case .fail(.unacceptable) = handle(&nameless, head(201, "Upload-Complete: ?0"))
        else {
            Issue.record("expected a refusal")
            return
        }
        var plain = self.machine(.plain)
        _ = plain.begin()
        #expect(handle(&plain, open, isBodySent: true) == .endAttempt)
    }

    @Test func anIdempotentRequestIsRestartedAfterAnAnswerThatPasses() {
        var machine = begun(sent: 100) {
            ($0.isRepeatedSafely, $0.repeatsTransientAnswers) = (true, true)
        }
        let error = TransferError.refused(
            url: url.display,
            status: 503,
            retryAfter: .seconds(3)
        )
        let answer = head(503, "Retry-After: 3")
        #expect(handle(&machine, answer, isBodySent: true) == .retry(error, after: .seconds(3)))
        #expect(machine.begin() == .request)
    }

    @Test func anAnswerBeforeTheEndOfTheBodyMayPass() {
        var machine = begun(sent: 50)
        let error = TransferError.refused(url: url.display, status: 503)
        #expect(handle(&machine, head(503)) == .retry(error, after: nil))
        machine = begun(sent: 50) { $0.acceptsTransientResponses = true }
        #expect(handle(&machine, head(503)) == .endAttempt)
        machine = begun(sent: 50)
        #expect(handle(&machine, head(413)) == .endAttempt)
    }

    @Test func anotherOffsetIsAskedForSoOftenAndNoMore() {
        var machine = machine(at: resource())
        #expect(machine.begin() == .queryOffset(url))
        for round in 0...2 {
            let action = handle(&machine, head(204, "Upload-Offset: 0"))
            #expect(action == .perform(.append(url, from: 0)))
            let conflict = handle(&machine, head(409, "Upload-Offset: 0"))
            if round < 2 {
                #expect(conflict == .perform(.queryOffset(url)))
            } else if case .retry(.unreachable, nil) = conflict {
            } else {
                Issue.record("expected the end of the attempt, found \(conflict)")
            }
        }
    }

    @Test func anOffsetThatCreepsOnIsAskedForSoOften() {
        var machine = machine(at: resource())
        _ = machine.begin()
        machine.noteSent(to: 90)
        for round in 0...8 {
            _ = handle(&machine, head(204, "Upload-Offset: \(round)"))
            machine.noteSent(to: 90)
            let conflict = handle(&machine, head(409, "Upload-Offset: \(round + 1)"))
            if round < 8 {
                #expect(conflict == .perform(.queryOffset(url)))
            } else if case .retry(.unreachable, nil) = conflict {
            } else {
                Issue.record("expected the end of the attempt, found \(conflict)")
            }
        }
        #expect(!machine.hasProgressed)
    }

    /// A server may accept only a part of each request's body.
    @Test func progressUsesUpNoQuestions() {
        let size: Int64 = 64 << 20
        var kept = resource()
        kept.size = ByteCount(size)
        var machine = machine(at: kept, size: size)
        _ = machine.begin()
        for round in 0..<60 {
            let offset = Int64(round) << 20
            let action = handle(&machine, head(204, "Upload-Offset: \(offset)"))
            machine.noteSent(to: size)
            #expect(action == .perform(.append(url, from: offset)))
            #expect(handle(&machine, head(409, "X: 1")) == .perform(.queryOffset(url)))
        }
    }

    @Test(arguments: [401, 407]) func aChallengeOfTheRestKeepsTheResource(status: Int) {
        var machine = machine(at: resource())
        _ = machine.begin()
        _ = handle(&machine, head(204, "Upload-Offset: 0"))
        #expect(handle(&machine, head(status)) == .deliver)
        #expect(machine.begin() == .queryOffset(url))
    }

    @Test(arguments: [401, 407]) func aChallengeIsAnAnswer(status: Int) {
        var machine = machine(at: resource())
        _ = machine.begin()
        #expect(handle(&machine, head(status)) == .deliver)
        #expect(machine.begin() == .queryOffset(url))
    }

    @Test(arguments: [true, false], [401, 407])
    func aRequestThatIsChallengedRestarts(isBodySent: Bool, status: Int) {
        var machine = begun(sent: 100)
        let answer = head(status, "Upload-Offset: 100")
        #expect(handle(&machine, answer, isBodySent: isBodySent) == .deliver)
        // A challenge of a proxy does not belong to the request.
        #expect(machine.begin() == (status == 401 ? .request : .queryOffset(url)))
    }
}
