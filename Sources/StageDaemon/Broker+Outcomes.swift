import FoundationEssentials
import HeapModule
import Logging
import StageControl
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

extension Broker {
    /// Hands a task to the scheduler.
    ///
    /// `reason` says why it is not to begin yet, where that is not by the client's or session's wish.
    func admit(_ record: TaskRecord, at now: Date, reason: HoldReason? = nil) {
        guard let session = sessions[record.session] else { return }
        var item = Scheduler.Item(
            user: session.record.user,
            session: record.session,
            host: record.host,
            sessionLimit: session.record.configuration.maximumConnectionsPerHost,
            priority: record.priority,
            needs: record.needs
        )
        item.blocks = record.blocks
        if let earliest = record.earliest, earliest > now {
            let isDiscretionary = session.record.configuration.isDiscretionary
            item.notBefore = Hold(
                reason ?? (isDiscretionary ? .discretionary : .earliestBegin),
                until: earliest
            )
        }
        if record.blocks.contains(.authentication) { sessions[record.session]?.isChallenged = true }
        if record.host == Scheduler.workerHost, isAttended(record.session) {
            item.host = Scheduler.clientHost
        }
        scheduler.add(record.id, item, at: now)
        if expiries.count > 2 * scheduler.items.count + 1024 {
            // Most are of tasks that have ended.
            expiries = Heap(expiries.unordered.filter { scheduler.items[$0.task] != nil })
        }
        expiries.insert(Expiry(date: record.deadline, task: record.id))
    }

    /// The reasons why a task does not run, each with the failure that it comes of.
    func holds(of id: Int64, at now: Date) -> [Hold] {
        scheduler.holds(of: id, at: now).map { hold in
            guard [.backoff, .server].contains(hold.reason), hold.problem == nil else {
                return hold
            }
            return Hold(hold.reason, until: hold.until, problem: extras[id]?.problem)
        }
    }

    /// Takes in what an attempt came to.
    func ended(_ task: FullTask, _ live: LiveTransfer, _ result: TransferRunner.Result) async {
        let id = task.record.id
        guard hasEnded(id) else { return }
        let state = live.current
        if state.received > (extras[id]?.received ?? .zero) + .kibibytes(256) {
            // What was received is worth trying again soon.
            extras[id]?.failures = 0
        }
        extras[id, default: Extra()].note(state)
        switch result {
        case .received(let file, let metrics, let response):
            noteSuccess(of: task)
            scheduler.remove(id)
            turn()
            var event = SessionEvent(.completed, time: .now)
            event.bytesReceived = state.received
            event.bytesExpected = state.received
            event.metrics = metrics
            event.response = response.map { TransferResponse($0) }
            await stage(task, file, event)
        case .sent(let metrics, let response, let body):
            noteSuccess(of: task)
            scheduler.remove(id)
            turn()
            var event = SessionEvent(.completed, time: .now)
            event.bytesSent = state.sent
            event.bytesExpected = task.request.size
            event.metrics = metrics
            event.response = response.map { TransferResponse($0) }
            event.body = Self.body(body)
            await conclude([(id, event.judged(task.request))], removing: task.record.part)
        case .staged(let end):
            await judge(task, end)
        case .verdict(let verdict):
            await judge(task, state, verdict)
        }
    }

    private func stage(
        _ task: FullTask,
        _ file: FilePath.Component,
        _ event: SessionEvent
    ) async {
        let record = task.record
        guard let user = sessions[record.session]?.record.user else { return }
        let item = Finisher.Item(
            task: record.id,
            user: user,
            part: record.part,
            file: file,
            event: event
        )
        let followers = await copies(for: item)
        do throws(DaemonError) {
            for follower in followers { try await finisher.finish(follower) }
            try await finisher.finish(item)
        } catch {
            // The content is here: another attempt finds it.
            logger.error("A file could not be staged", metadata: ["error": "\(error)"])
            for follower in followers { await readmit(follower.task) }
            await readmit(record.id)
            return
        }
        for item in [item] + followers { storage.move(.part(item.part), to: .staged(item.task)) }
        await conclude([(record.id, event)] + followers.map { ($0.task, $0.event) })
    }

    /// The part of the body of an answer to an upload that is kept.
    private static func body(_ bytes: [UInt8]) -> Data? {
        bytes.isEmpty ? nil : Data(bytes.prefix(64 << 10))
    }

    /// Hands a task to the scheduler once more whose content could not be given its place.
    func readmit(_ id: Int64) async {
        do throws(DaemonError) {
            guard let task = try await journal.task(id), task.record.state != .ended else { return }
            guard !task.record.hasProvisionalEnd else { return await fail(task, .lostAnswer) }
            if task.record.state == .verified { try await journal.reopen(id) }
            admit(task.record, at: .now)
        } catch {
            // It is taken up at the next start.
            logger.error("A task could not be read", metadata: ["error": "\(error)"])
        }
        waitForDisk(id)
        turn()
    }

    private func judge(
        _ task: FullTask,
        _ state: LiveTransfer.State,
        _ verdict: TransferVerdict
    ) async {
        let (id, now) = (task.record.id, Date.now)
        switch verdict {
        case .stopped:
            scheduler.paused(id, nil, at: now)
        case .again(let hold):
            extras[id]?.failures += 1
            extras[id]?.noteAnswer(state.response)
            noteHost(of: id, isUnreachable: hold.reason == .backoff && state.isUnreachable)
            if hold.reason == .quota {
                await waitForQuota(task, hold)
            } else {
                scheduler.paused(id, hold, at: now)
            }
        case .diskFull:
            scheduler.paused(id, nil, at: now)
            holdForSpace()
        case .challenge:
            await challenge(task, state)
        case .fail(let failure):
            await fail(task, failure)
        }
        handOver(task.request, task.record.session)
        if task.request.kind == .staging { assign(id) }
        tellHolds(of: id, at: now)
        turn()
    }

    /// How long nothing runs when the disk was found full, until it is looked at again.
    static let diskWait = 15.0

    /// Puts a task off whose file or record the disk has refused.
    func waitForDisk(_ id: Int64) {
        scheduler.paused(id, Hold(.disk, until: .now + Self.diskWait), at: .now)
    }

    /// Starts nothing until there is space again.
    func holdForSpace() {
        spaceWhenFull = freeSpace
        scheduler.fullUntil = .now + Self.diskWait
    }

    /// Goes on waiting for space, if there is none yet.
    func checkSpace() {
        guard let until = scheduler.fullUntil, until <= .now else { return }
        let (free, before) = (freeSpace, spaceWhenFull)
        // Somebody has made room, if only a little: that it is enough will be seen.
        let isEnough = free >= configuration.reserve || free >= before + .mebibytes(1)
        scheduler.fullUntil = isEnough ? nil : .now + Self.diskWait
    }

    private var freeSpace: ByteCount {
        // What cannot be told is found out by writing.
        (try? store.root.freeSpace().bytes).map { ByteCount($0) } ?? configuration.reserve
    }

    private func challenge(_ task: FullTask, _ state: LiveTransfer.State) async {
        let id = task.record.id
        scheduler.change(id, at: .now) { $0.blocks.insert(.authentication) }
        scheduler.paused(id, nil, at: .now)
        guard let blocks = scheduler.items[id]?.blocks else { return }
        var event = SessionEvent(.challenged, time: .now)
        event.response = state.response.map { TransferResponse($0) }
        event.body = Self.body(state.body)
        event.challenge =
            state.response?.fields
            .first { ["www-authenticate", "proxy-authenticate"].contains($0.name.lowercased()) }?
            .value
        do throws(DaemonError) {
            let recorded = try await journal.record(event, of: id, blocks: blocks)
            if let recorded {
                sessions[recorded.session]?.isChallenged = true
                await announce([recorded])
            }
        } catch {
            // Asked again, the server asks again.
            logger.error("A challenge was not recorded", metadata: ["error": "\(error)"])
            scheduler.change(id, at: .now) { $0.blocks.remove(.authentication) }
            waitForDisk(id)
        }
    }

    /// Ends a task in an error, with what it has received kept for a while.
    func fail(_ task: FullTask, _ failure: TransferFailure) async {
        scheduler.remove(task.record.id)
        var failure = failure
        var event = SessionEvent(.failed, time: .now)
        let remnant = remnant(of: task)
        failure.resumeToken = remnant?.token
        event.failure = failure
        let extra = extras[task.record.id]
        event.response = extra?.response
        if task.request.kind == .download { event.bytesReceived = extra?.received }
        if task.request.kind == .upload { event.bytesSent = extra?.sent }
        event.bytesExpected = task.request.size ?? extra?.total
        var metrics = TransferMetrics(ended: .now)
        metrics.attempts = extra?.attempts ?? 0
        metrics.started = extra?.started
        metrics.attempt = extra?.attempt
        metrics.redirects = extra?.redirects ?? 0
        event.metrics = metrics
        await conclude(
            [(task.record.id, event)],
            leaving: remnant,
            removing: remnant == nil ? task.record.part : nil
        )
    }

    /// What another task may go on with, if there is anything.
    func remnant(of task: FullTask) -> Remnant? {
        guard task.request.kind == .download, let user = sessions[task.record.session]?.record.user,
            let name = FilePath.Component(task.record.part),
            // What cannot be opened is nothing to go on with.
            let part = try? PartFile.open(name, in: store.parts), part.length > .zero,
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

    /// Says that tasks have ended (P6), to the journal first.
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
            for (session, event) in events {
                sessions[session]?.unfinished -= 1
                sessions[session]?.saw(event)
            }
            for (id, _) in ending.outcomes { forget(id) }
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
            sessions[session]?.saw(event)
            if let record = sessions[session]?.record { feed.sendToWatchers(event, of: record) }
        }
        for session in Set(events.map(\.session)) {
            feed.wake(session)
            await considerLaunch(session)
            await removeIfOver(session)
        }
    }

    /// Removes, once a day, what cancelled downloads left and nobody went on with.
    func sweepRemnants() async {
        guard lastSweep + 86_400 < .now else { return }
        lastSweep = .now
        do throws(DaemonError) {
            removeFiles(try await journal.removeExpiredRemnants(before: .now))
        } catch {
            logger.warning("What is left of downloads stays", metadata: ["error": "\(error)"])
        }
    }

    private func giveUp(_ task: FullTask) async {
        guard scheduler.items[task.record.id] != nil else { return }
        scheduler.remove(task.record.id)
        await stop(task.record.id)
        await fail(
            task,
            TransferFailure(.timedOut, reason: "the task did not end in the time it has")
        )
    }

    /// Gives up tasks whose time has run out.
    func expire() async {
        let now = Date.now
        while let expiry = expiries.min, expiry.date <= now {
            expiries.removeMin()
            guard scheduler.items[expiry.task] != nil else { continue }
            do throws(DaemonError) {
                guard let task = try await journal.task(expiry.task),
                    // It may have ended meanwhile.
                    scheduler.items[expiry.task] != nil
                else { continue }
                // Beside this: a user's worker may take its time to end.
                Task { await giveUp(task) }
            } catch {
                logger.error("A task was not read", metadata: ["error": "\(error)"])
            }
        }
    }
}
