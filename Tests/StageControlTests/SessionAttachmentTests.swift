import Testing

@testable import StageControl

/// Decisions of a client that receives a session's events, without a daemon.
@Suite struct SessionAttachmentTests {
    private let start = ContinuousClock.now
    private let silent = ControlError.notRunning(["/socket"])

    private func status(last: Int64, acknowledged: Int64) -> SessionStatus {
        var status = SessionStatus(identifier: "s", user: 0, configuration: SessionConfiguration())
        status.lastEvent = last
        status.acknowledgedEvent = acknowledged
        return status
    }

    @Test func delaysGrowUntilEventsCameForAWhile() {
        var attachment = SessionAttachment()
        var now = start
        var delays: [Duration] = []
        for lasted in [nil, .zero, .seconds(9), .seconds(10), nil] as [Duration?] {
            attachment.begin()
            if let lasted {
                attachment.attach(at: now)
                now += lasted
            }
            delays.append(attachment.lose(.lost("/socket"), at: now))
        }
        #expect(delays == [100, 200, 400, 100, 200].map { .milliseconds($0) })
    }

    @Test func failedAttemptsAreCountedSinceEventsCame() {
        var attachment = SessionAttachment()
        _ = attachment.lose(silent, at: start)
        _ = attachment.lose(silent, at: start)
        #expect(attachment.failures == 2)
        attachment.attach(at: start)
        #expect(attachment.problem == nil)
        _ = attachment.lose(.lost("/socket"), at: start)
        #expect(attachment.failures == 0 && attachment.problem == .lost("/socket"))
    }

    @Test(arguments: [
        (ControlError.notRunning(["/socket"]), true), (.lost("/socket"), true),
        (.refused(ControlRefusal(.conflict, message: "another process")), false),
    ])
    func aDaemonThatARequestFindsIsAttachedToAtOnce(problem: ControlError, cutsShort: Bool) {
        var attachment = SessionAttachment()
        attachment.begin()
        attachment.daemonWasFound()
        #expect(!attachment.skipsDelay, "it is being tried")
        _ = attachment.lose(problem, at: start)
        attachment.daemonWasFound()
        #expect(attachment.skipsDelay == cutsShort)
    }

    @Test func eventsAreAcknowledgedInOrderAndOnlyWhileAttachedOrAtTheEnd() {
        var attachment = SessionAttachment()
        let received = attachment.prepare(status(last: 3, acknowledged: 1))
        #expect(received == 1)
        attachment.attach(at: start)
        let isNew = [1, 2, 3].map { attachment.receive($0) }
        #expect(isNew == [false, true, true])
        attachment.finish(3)
        #expect(attachment.dueAcknowledgement == nil)
        attachment.finish(2)
        #expect(attachment.dueAcknowledgement == Acknowledgement(sequence: 3))
        attachment.drop()
        #expect(attachment.dueAcknowledgement == nil)
        attachment.end()
        #expect(attachment.dueAcknowledgement == Acknowledgement(sequence: 3))
        attachment.wasAcknowledged(Acknowledgement(sequence: 3))
        #expect(attachment.dueAcknowledgement == nil)
    }

    @Test func aLaunchIsAcknowledgedWithWhatIsFinished() {
        var attachment = SessionAttachment()
        attachment.attach(at: start)
        _ = attachment.receive(1)
        attachment.finish(1)
        _ = attachment.receive(2)
        attachment.launch = "token"
        let due = Acknowledgement(sequence: 1, launch: "token")
        #expect(attachment.dueAcknowledgement == due)
        attachment.wasAcknowledged(due)
        #expect(attachment.dueAcknowledgement == nil)
    }

    @Test func anEventThatCouldNotBeTakenInIsAskedForAgain() {
        var attachment = SessionAttachment()
        _ = attachment.receive(1)
        attachment.finish(1)
        _ = attachment.receive(2)
        attachment.takeBack(2)
        let received = attachment.prepare(status(last: 2, acknowledged: 0))
        #expect(received == 1)
        let isNew = attachment.receive(2)
        #expect(isNew)
    }

    @Test func anAttemptThatIsDroppedIsOfNoUse() {
        var attachment = SessionAttachment()
        attachment.begin()
        attachment.drop()
        #expect(!attachment.wantsEvents)
        _ = attachment.lose(.lost("/socket"), at: start)
        attachment.drop()
        attachment.begin()
        #expect(attachment.wantsEvents, "the next attempt was not dropped")
    }

    @Test func eventsOfAnotherSessionAreCountedFromItsBeginning() {
        var attachment = SessionAttachment()
        var first = status(last: 0, acknowledged: 0)
        first.number = 1
        _ = attachment.prepare(first)
        _ = attachment.receive(1)
        var again = status(last: 1, acknowledged: 0)
        again.number = 1
        let received = attachment.prepare(again)
        #expect(received == 1)
        again.number = 2
        let anew = attachment.prepare(again)
        #expect(anew == 0)
        let isNew = attachment.receive(1)
        #expect(isNew)
    }
}
