import FoundationEssentials
import HeapModule
import Logging
import StageControl
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

extension Broker {
    /// Takes up what an earlier run of the daemon left.
    ///
    /// Content that was good is given its place and said; what was under way goes on; files that
    /// belong to nothing are removed.
    func recover() async throws(DaemonError) {
        for record in try await journal.sessions() {
            var session = LiveSession(record: record)
            if record.relaunch.lease != nil {
                // The handler's end was not seen: the launch counts.
                session.record.relaunch.recover()
                try await journal.update(session.record.relaunch, of: record.id)
            }
            sessions[record.id] = session
        }
        let now = Date.now
        var verified: [TaskRecord] = []
        for record in try await journal.openTasks() {
            sessions[record.session]?.unfinished += 1
            guard record.state == .active else {
                verified.append(record)
                continue
            }
            admit(record, at: now)
        }
        for record in verified { try await complete(record) }
        let store = store
        let names = try await journal.sweep(before: now)
        do throws(FileError) {
            try await withBlockingThread { () throws(FileError) in
                try store.sweep(keeping: names)
            }
        } catch {
            throw .file(error)
        }
        for id in sessions.keys.sorted() { await considerLaunch(id) }
        turn()
    }

    /// Hands a task to the scheduler.
    func admit(_ record: TaskRecord, at now: Date) {
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
            item.notBefore = Hold(.earliestBegin, until: earliest)
        }
        scheduler.add(record.id, item, at: now)
        expiries.insert(Expiry(date: record.deadline, task: record.id))
    }

    /// Finishes what P5 said and P6 did not (transfers.md, the crash table).
    private func complete(_ record: TaskRecord) async throws(DaemonError) {
        guard let session = sessions[record.session], let task = try await journal.task(record.id),
            let event = task.outcome
        else { return }
        let isPlaced: Bool
        do throws(FileError) {
            isPlaced = try store.finishPlacing(record, of: session.record.user)
        } catch {
            throw .file(error)
        }
        guard isPlaced else {
            try await journal.reopen(record.id)
            admit(record, at: .now)
            return
        }
        await conclude([(record.id, event)])
    }

    /// Takes in what an attempt came to.
    func ended(_ task: FullTask, _ live: LiveTransfer, _ result: TransferRunner.Result) async {
        let id = task.record.id
        self.live[id] = nil
        let state = live.current
        extras[id, default: Extra()].received = state.received
        extras[id]?.attempts += state.attempts
        extras[id]?.problem = state.problem
        switch result {
        case .received(let file, let metrics, let response):
            scheduler.remove(id)
            turn()
            var event = SessionEvent(.completed, time: .now)
            event.bytesReceived = state.received
            event.bytesExpected = state.received
            event.metrics = metrics
            event.response = response.map(TransferResponse.init)
            await stage(task, file, event)
        case .sent(let metrics, let response, let body):
            scheduler.remove(id)
            turn()
            var event = SessionEvent(.completed, time: .now)
            event.bytesSent = state.sent
            event.metrics = metrics
            event.response = response.map(TransferResponse.init)
            event.body = body.isEmpty ? nil : Data(body)
            await conclude([(id, event)], removing: task.record.part)
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
            await fail(task, TransferFailure(.storage, reason: "\(error)"))
            return
        }
        await conclude([(record.id, event)] + followers.map { ($0.task, $0.event) })
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
            scheduler.paused(id, hold, at: now)
        case .diskFull:
            scheduler.paused(id, nil, at: now)
            scheduler.fullUntil = now + Self.diskWait
        case .challenge:
            await challenge(task, state)
        case .fail(let failure):
            await fail(task, failure)
        }
        handOver(task.request, task.record.session)
        if scheduler.items[id] != nil {
            tell(.changed, id) { event in
                event.state = .waiting
                event.holds = scheduler.holds(of: id, at: now)
            }
        }
        turn()
    }

    /// How long nothing runs when the disk was found full.
    private static let diskWait = 15.0

    private func challenge(_ task: FullTask, _ state: LiveTransfer.State) async {
        let id = task.record.id
        scheduler.change(id, at: .now) { $0.blocks.insert(.authentication) }
        scheduler.paused(id, nil, at: .now)
        guard let blocks = scheduler.items[id]?.blocks else { return }
        var event = SessionEvent(.challenged, time: .now)
        event.response = state.response.map(TransferResponse.init)
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
            logger.error("A challenge was not recorded", metadata: ["error": "\(error)"])
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
        var metrics = TransferMetrics(ended: .now)
        metrics.attempts = extras[task.record.id]?.attempts ?? 0
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
            extras[task.record.id]?.received ?? .zero > .zero
        else { return nil }
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
        do throws(DaemonError) {
            let events = try await journal.end(outcomes, leaving: remnant.map { [$0] } ?? [])
            for (session, event) in events {
                sessions[session]?.unfinished -= 1
                sessions[session]?.saw(event)
            }
            for (id, _) in outcomes { await forget(id) }
            if let name { removeFiles([name]) }
            await announce(events)
        } catch {
            // The daemon cannot keep its word without its journal: it ends, and what started it
            // starts it again.
            logger.critical("An end was not recorded", metadata: ["error": "\(error)"])
            end()
        }
        turn()
    }

    /// Tells clients, or starts their handlers.
    private func announce(_ events: [(session: Int64, event: SessionEvent)]) async {
        for (session, event) in events {
            sessions[session]?.saw(event)
            watched(event, session)
        }
        for session in Set(events.map(\.session)) {
            sessions[session]?.subscription?.ring()
            await considerLaunch(session)
        }
    }

    /// Removes what belongs to names among the parts and the copies; what is left is swept later.
    func removeFiles(_ names: [String]) {
        for name in names {
            do throws(FileError) {
                try store.removeFiles(of: name)
            } catch {
                logger.warning("A file is left over", metadata: ["error": "\(error)"])
            }
        }
    }

    /// Gives up tasks whose time has run out.
    func expire() async {
        let now = Date.now
        while let expiry = expiries.min, expiry.date <= now {
            expiries.removeMin()
            guard scheduler.items[expiry.task] != nil else { continue }
            do throws(DaemonError) {
                guard let task = try await journal.task(expiry.task) else { continue }
                live[expiry.task]?.switchOff.stop()
                await fail(
                    task,
                    TransferFailure(.timedOut, reason: "the task did not end in the time it has")
                )
            } catch {
                logger.error("A task was not read", metadata: ["error": "\(error)"])
            }
        }
    }
}
