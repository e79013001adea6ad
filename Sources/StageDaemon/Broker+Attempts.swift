import FoundationEssentials
import Logging
import StageControl
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// Attempts: their input, and what they came to.
extension Broker {
    /// Returns the input of an attempt, or `nil` if it is not wanted any more, or not now.
    func begin(_ id: Int64) async -> TransferState.Attempt? {
        let task: FullTask?
        let beginning: TransferState.Beginning
        do throws(DaemonError) {
            task = try await journal.task(id)
            let user = (task?.record.session).flatMap { state.sessions[$0]?.record.user }
            let used = if let user { try await journal.usage(of: user) } else { Int64(0) }
            beginning = state.begin(id, task, used: used, at: .now)
        } catch {
            logger.error("A task could not be read", metadata: ["error": "\(error)"])
            state.postpone(id, Hold(.backoff, until: .now + 60), at: .now)
            endHandle(of: id)
            turn()
            return nil
        }
        if case .run(let attempt) = beginning { return attempt }
        endHandle(of: id)
        if let task {
            switch beginning {
            case .place: await complete(task.record)
            case .fail(let failure): await fail(task, failure)
            case .run, .none: setTimer()
            }
        }
        turn()
        return nil
    }

    /// Forgets the handle of an attempt that the value has ended.
    func endHandle(of id: Int64) {
        tellProgress()
        live[id] = nil
        resumeHalts(of: id)
    }

    /// Takes in what an attempt came to.
    func ended(_ task: FullTask, _ live: LiveTransfer, _ result: TransferRunner.Result) async {
        let id = task.record.id
        guard endAttempt(of: id) else { return }
        let now = Date.now
        let report = live.current.report(ended: now)
        state.note(report, of: id)
        var event = SessionEvent(.completed, time: now)
        switch result {
        case .received(let file, let metrics, let response):
            guard state.succeed(task, at: now) else { return }
            state.placing.insert(id)
            turn()
            event.bytesReceived = report.received
            event.bytesExpected = report.received
            event.metrics = metrics
            event.response = response.map { TransferResponse($0) }
            await stage(task, file, event)
        case .sent(let metrics, let response, let body):
            guard state.succeed(task, at: now) else { return }
            turn()
            event.bytesSent = report.sent
            event.bytesExpected = task.request.size
            event.metrics = metrics
            event.response = response.map { TransferResponse($0) }
            event.body = AttemptReport.body(body)
            await conclude([(id, event.judged(task.request))], removing: task.record.part)
        case .staged(let end):
            await follow(state.judge(end, of: task, at: now), for: task)
        case .verdict(let verdict):
            await follow(state.judge(verdict, of: task, report, at: now), for: task)
        }
    }

    /// Does what was decided after an attempt.
    func follow(_ judgement: TransferState.Judgement, for task: FullTask) async {
        let id = task.record.id
        switch judgement {
        case .wait: break
        case .waitForSpace: holdForSpace()
        case .waitForQuota: await findQuota(for: task)
        case .record(let event): await recordChallenge(event, of: id)
        case .fail(let failure): await fail(task, failure)
        case .complete: await conclude([(id, SessionEvent(.completed, time: .now))])
        }
        tellHolds(of: id)
        turn()
    }

    private func recordChallenge(_ event: SessionEvent, of id: Int64) async {
        await beginChange(of: id)
        defer { endChange(of: id) }
        let blocks = state.storedBlocks(of: id)
        do throws(DaemonError) {
            guard let recorded = try await journal.record(event, of: id, blocks: blocks) else {
                return
            }
            state.challengeRecorded(of: id)
            await announce([recorded])
        } catch {
            logger.error("A challenge was not recorded", metadata: ["error": "\(error)"])
            state.challengeNotRecorded(of: id, at: .now)
        }
    }

    /// Looks for bytes that the user of a task does not have any more; without any the task fails where it would need
    /// more each time.
    private func findQuota(for task: FullTask) async {
        let id = task.record.id
        guard let user = state.scheduler.items[id]?.user, !(await releaseMoved(of: user)),
            state.waitsForQuota(id), isEndless(task)
        else { return }
        // It begins anew each time: its bytes are of no use, and count.
        removeFiles([task.record.part], apart: id)
        guard state.failsByQuota(id) else { return }
        await fail(
            task,
            TransferFailure(.storage, reason: "its content does not end within the quota")
        )
    }

    /// Whether a partial download has no known size, so that no attempt goes on with it.
    private func isEndless(_ task: FullTask) -> Bool {
        guard let name = FilePath.Component(task.record.part),
            // What cannot be opened is nothing to go on with.
            let part = try? PartialFile.open(name, in: store.parts)
        else { return false }
        return part.total == nil
    }
}

/// Content that is complete.
extension Broker {
    private func stage(
        _ task: FullTask,
        _ file: FilePath.Component,
        _ event: SessionEvent
    ) async {
        let record = task.record
        guard let user = state.sessions[record.session]?.record.user else {
            return endPlacing(of: record.id)
        }
        let item = Finisher.Item(
            task: record.id,
            user: user,
            part: record.part,
            file: file,
            event: event
        )
        let items = [item] + (await copies(for: item))
        do throws(DaemonError) {
            for item in items.dropFirst() { try await finisher.finish(item) }
            try await finisher.finish(item)
        } catch {
            // The content is here: another attempt finds it.
            logger.error("A file could not be staged", metadata: ["error": "\(error)"])
            for item in items {
                endPlacing(of: item.task)
                await readmit(item.task)
            }
            return
        }
        for item in items {
            storage.move(.part(item.part), to: .staged(item.task))
            endPlacing(of: item.task)
        }
        await conclude(items.map { ($0.task, $0.event) })
    }

    /// Makes copies of complete content for the tasks that wait for it.
    private func copies(for item: Finisher.Item) async -> [Finisher.Item] {
        var copies: [Finisher.Item] = []
        for id in state.followersToServe(by: item.task, at: .now) where state.serve(id) {
            let (name, store) = ("task-\(id)", store)
            guard let file = FilePath.Component("\(name).part.1"),
                let size = item.event.bytesReceived?.rawValue,
                storage.grow(.part(name), to: size, of: item.user) == .granted
            else {
                // One that has no room now fetches for itself, later.
                endPlacing(of: id)
                await readmit(id)
                continue
            }
            do throws(FileError) {
                try await withBlockingThread { () throws(FileError) in
                    try store.copyPart(item.file, to: file)
                }
            } catch {
                // It fetches for itself, then.
                logger.warning("Content was not shared", metadata: ["error": "\(error)"])
                removeFiles([name])
                endPlacing(of: id)
                await readmit(id)
                continue
            }
            var copy = item
            (copy.task, copy.part, copy.file) = (id, name, file)
            copies.append(copy)
        }
        return copies
    }

    /// Tries again to hand tasks to the scheduler that could not be read.
    func readmitAll() async {
        let tasks = unadmitted.sorted()
        unadmitted = []
        for id in tasks { await readmit(id) }
    }

    /// Hands a task to the scheduler once more whose content could not be given its place.
    func readmit(_ id: Int64) async {
        do throws(DaemonError) {
            guard let task = try await journal.task(id), task.record.state != .ended else {
                return state.forget(id, at: .now)
            }
            guard !task.record.hasProvisionalEnd else { return await fail(task, .lostAnswer) }
            if task.record.state == .verified { try await journal.reopen(id) }
            state.admit(task.record, task.request, at: .now)
        } catch {
            logger.error("A task could not be read", metadata: ["error": "\(error)"])
            unadmitted.insert(id)
        }
        state.waitForDisk(id, at: .now)
        turn()
    }
}

/// Ends of tasks.
extension Broker {
    /// Ends a task in an error, with what it has received kept for a while.
    func fail(_ task: FullTask, _ failure: TransferFailure) async {
        _ = state.takeOut(task.record.id)
        let remnant = remnant(of: task)
        let event = state.failure(failure, of: task, token: remnant?.token, at: .now)
        await conclude(
            [(task.record.id, event)],
            leaving: remnant,
            removing: remnant == nil ? task.record.part : nil
        )
    }

    /// Ends a task whose challenge the client has rejected, with the server's answer where that is an answer like any
    /// other.
    func endUnanswered(_ task: FullTask) async {
        let id = task.record.id
        if task.request.kind == .upload, let challenge = await challenge(of: id) {
            let event = state.answer(of: task, challenge, at: .now)
            return await conclude([(id, event)], removing: task.record.part)
        }
        var refusal = TransferFailure(.refused, reason: "the challenge was not answered")
        refusal.status = state.histories[id]?.response?.status ?? 401
        await fail(task, refusal)
    }

    private func challenge(of id: Int64) async -> SessionEvent? {
        do throws(DaemonError) {
            return try await journal.challenge(of: id)
        } catch {
            logger.warning("An answer could not be read", metadata: ["error": "\(error)"])
            return nil
        }
    }

    /// The received content that another task may go on with; `nil` if there is none.
    func remnant(of task: FullTask) -> Remnant? {
        guard task.request.kind == .download,
            let user = state.sessions[task.record.session]?.record.user,
            let name = FilePath.Component(task.record.part),
            // What cannot be opened is nothing to go on with.
            let part = try? PartialFile.open(name, in: store.parts), part.length > .zero,
            // Content of unknown size is never continued.
            part.total != nil
        else { return nil }
        storage.set(.part(task.record.part), to: part.length.rawValue, of: user)
        return Remnant(
            token: "r-\(UUID().uuidString.lowercased())",
            user: user,
            part: task.record.part,
            url: task.request.url,
            expires: Date.now + 7 * 86_400
        )
    }

    /// Says that tasks have ended, to the journal first.
    func conclude(
        _ outcomes: [(id: Int64, event: SessionEvent)],
        leaving remnant: Remnant? = nil,
        removing name: String? = nil
    ) async {
        let ending = Ending(outcomes: outcomes, remnant: remnant, superfluous: name)
        if !(await record(ending)) {
            unrecorded.append(ending)
            holdForSpace()
        }
        turn()
    }

    /// Tries again to write ends down that could not be.
    func recordEndings() async {
        let endings = unrecorded
        unrecorded = []
        for ending in endings where !(await record(ending)) { unrecorded.append(ending) }
    }

    private func record(_ ending: Ending) async -> Bool {
        do throws(DaemonError) {
            let events = try await journal.end(
                ending.outcomes,
                leaving: ending.remnant.map { [$0] } ?? []
            )
            state.ended(ending.outcomes.map(\.id), events, at: .now)
            if let name = ending.superfluous { removeFiles([name]) }
            await announce(events)
            return true
        } catch {
            logger.error("An end was not recorded", metadata: ["error": "\(error)"])
            return false
        }
    }

    /// Tells clients, or starts their handlers.
    private func announce(_ events: [(session: Int64, event: SessionEvent)]) async {
        for (session, event) in events {
            state.sessions[session]?.saw(event)
            if let record = state.sessions[session]?.record {
                feed.sendToWatchers(event, of: record)
            }
        }
        for session in Set(events.map(\.session)) {
            feed.wake(session)
            await considerLaunch(session)
            await removeIfOver(session)
        }
    }

    /// Removes, once a day, resume data that has expired.
    func sweepRemnants() async {
        guard state.isSweepDue(at: .now) else { return }
        do throws(DaemonError) {
            removeFiles(try await journal.removeExpiredRemnants(before: .now))
        } catch {
            logger.warning("What is left of downloads stays", metadata: ["error": "\(error)"])
        }
    }

    /// Gives up tasks whose time has run out.
    func expire() async {
        for id in state.expired(at: .now) {
            do throws(DaemonError) {
                guard let task = try await journal.task(id) else { continue }
                // It may have ended meanwhile.
                guard state.takeOut(id) else { continue }
                // Beside this: a user's worker may take its time to end.
                Task { await giveUp(task) }
            } catch {
                logger.error("A task was not read", metadata: ["error": "\(error)"])
                state.postponeExpiry(of: id, at: .now)
            }
        }
    }

    private func giveUp(_ task: FullTask) async {
        await stop(task.record.id)
        let deletion = await deletion(of: task)
        await fail(
            task,
            TransferFailure(.timedOut, reason: "the task did not end in the time it has")
        )
        begin(deletion)
    }
}
