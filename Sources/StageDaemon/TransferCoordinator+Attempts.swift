import FoundationEssentials
import Logging
import StageControl
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// Start and end of attempts.
extension TransferCoordinator {
    /// Returns the input of an attempt, or `nil` if the attempt must not begin, or not yet.
    func begin(_ id: Int64) async -> TransferState.Attempt? {
        await waitForPartialFile(of: id)
        let task: FullTask?
        let beginning: TransferState.Beginning
        do throws(DaemonError) {
            task = try await journal.task(id)
            let user = (task?.record.session).flatMap { state.sessions[$0]?.record.user }
            let used = if let user { try await journal.usage(of: user) } else { Int64(0) }
            beginning = state.begin(id, task: task, used: used, at: readClock())
        } catch {
            logger.error("A task could not be read", metadata: ["error": "\(error)"])
            state.postpone(
                id,
                pending: PendingReason(.backoff, until: readClock() + 60, problem: "\(error)"),
                at: readClock()
            )
            endHandle(of: id)
            runScheduler()
            sendPendingReasons(of: id)
            return nil
        }
        if case .run(let attempt) = beginning { return attempt }
        endHandle(of: id)
        if let task {
            switch beginning {
            case .commit: await commitVerified(task.record)
            case .fail(let failure): await fail(task, with: failure)
            case .run, .none: setTimer()
            }
        }
        runScheduler()
        // Clients have already received an event that the task runs.
        sendPendingReasons(of: id)
        return nil
    }

    /// Forgets the ``LiveTransfer`` of an attempt that ``TransferState`` has ended.
    func endHandle(of id: Int64) {
        live[id]?.endProgress()
        deliverProgress()
        if let transfer = live.removeValue(forKey: id), let user = transfer.user {
            let last = transfer.current
            state.count(received: last.newlyReceived, sent: last.newlySent, of: user)
        }
        resumeAbortWaiters(of: id)
    }

    /// Processes the result of an attempt.
    func ended(_ task: FullTask, transfer live: LiveTransfer, result: TransferRunner.Result) async {
        let id = task.record.id
        // The end of an aborted attempt lets another worker start.
        guard endAttempt(of: id) else { return runScheduler() }
        let now = readClock()
        let report = live.current.report(ended: now)
        state.note(report, of: id)
        var event = SessionEvent(.completed, time: now)
        switch result {
        case .received(let part, let metrics, let response):
            guard state.succeed(task, at: now) else { return }
            state.committing.insert(id)
            runScheduler()
            event.bytesReceived = report.received
            event.bytesExpected = report.received
            event.metrics = metrics
            event.response = response.map { TransferResponse($0) }
            await commitDownload(of: task, in: part, event: event)
        case .sent(let metrics, let response, let body):
            guard state.succeed(task, at: now) else { return }
            runScheduler()
            event.bytesSent = report.sent
            event.bytesExpected = task.request.size
            event.metrics = metrics
            event.response = response.map { TransferResponse($0) }
            event.body = AttemptReport.body(body)
            await conclude([(id, event.checkingStatus(task.request))], removing: task.record.part)
        case .staged(let end):
            await follow(state.judge(end, of: task, at: now), for: task)
        case .verdict(let verdict):
            let judgement = state.judge(verdict, of: task, report: report, at: now)
            await follow(judgement, for: task, response: report.response)
        }
    }

    /// Carries out the decision that ``TransferState`` made after an attempt with this response.
    func follow(
        _ judgement: TransferState.Judgement,
        for task: FullTask,
        response: TransferResponse? = nil
    ) async {
        let id = task.record.id
        switch judgement {
        case .wait: break
        case .waitForSpace(let problem): waitForSpace(problem: problem)
        case .waitForQuota: await findQuota(for: task)
        case .record(let event): await recordChallenge(event, of: id)
        case .fail(let failure): await fail(task, with: failure, response: response)
        case .complete: await conclude([(id, SessionEvent(.completed, time: .now))])
        }
        sendPendingReasons(of: id)
        runScheduler()
    }

    private func recordChallenge(_ event: SessionEvent, of id: Int64) async {
        await beginChange(of: .task(id))
        defer { endChange(of: .task(id)) }
        let blocks = state.storedBlocks(of: id)
        do throws(DaemonError) {
            guard let recorded = try await journal.record(event, of: id, blocks: blocks) else {
                return
            }
            state.challengeRecorded(of: id)
            await announce([recorded])
        } catch {
            logger.error("A challenge was not recorded", metadata: ["error": "\(error)"])
            state.challengeNotRecorded(of: id, after: error, at: readClock())
        }
    }
}

/// Completed downloads.
extension TransferCoordinator {
    private func commitDownload(
        of task: FullTask,
        in part: PartialFile,
        event: SessionEvent
    ) async {
        let record = task.record
        guard let user = state.sessions[record.session]?.record.user else {
            return endCommit(of: record.id)
        }
        let item = DownloadCommitter.CompletedDownload(
            task: record.id,
            user: user,
            part: record.part,
            file: part.fileName,
            content: part,
            event: event
        )
        let items = [item] + (await copies(for: item))
        do throws(DaemonError) {
            for item in items.dropFirst() { try await committer.commit(item) }
            try await committer.commit(item)
        } catch {
            logger.error("A download could not be committed", metadata: error.metadata)
            for item in items {
                await reschedule(item.task, after: error)
                endCommit(of: item.task)
            }
            return runScheduler()
        }
        for item in items {
            storage.move(.part(item.part), to: .finished(item.task))
            endCommit(of: item.task)
        }
        // In steps, so that other changes of the journal are made in between.
        var outcomes = items.map { (id: $0.task, event: $0.event) }[...]
        while !outcomes.isEmpty {
            await conclude(Array(outcomes.prefix(Journal.batchSize)))
            outcomes = outcomes.dropFirst(Journal.batchSize)
        }
    }

    /// Copies the content of a completed download for the other tasks that wait for the same content.
    private func copies(
        for item: DownloadCommitter.CompletedDownload
    ) async -> [DownloadCommitter.CompletedDownload] {
        var copies: [DownloadCommitter.CompletedDownload] = []
        for id in state.followersToServe(by: item.task, at: readClock()) where state.serve(id) {
            let (name, files) = ("task-\(id)", files)
            let size = item.event.bytesReceived?.rawValue ?? 0
            let verdict = storage.grow(.part(name), to: size, of: item.user)
            guard let file = FilePath.Component("\(name).part.1"), verdict == .granted else {
                // No space for a copy now: the task downloads the content itself, later.
                let reason = verdict == .full ? .noSpace : DiskQuota.quotaExceeded
                let error = FileError("grow", path: files.root.path, errno: reason)
                await reschedule(id, after: .file(error))
                endCommit(of: id)
                continue
            }
            do throws(FileError) {
                try await withBlockingThread { () throws(FileError) in
                    try files.copyPart(item.file, to: file)
                }
            } catch {
                // The copy failed: the task downloads the content itself.
                logger.warning("Content was not shared", metadata: error.metadata)
                await removeFiles([name])
                await reschedule(id, after: .file(error))
                endCommit(of: id)
                continue
            }
            var copy = item
            (copy.task, copy.part, copy.file, copy.content) = (id, name, file, nil)
            copies.append(copy)
        }
        return copies
    }
}

/// Ends of tasks.
extension TransferCoordinator {
    /// Ends a task with a failure, and keeps its received bytes as resume data for a week.
    ///
    /// Without a response, the event has the one that the history keeps.
    func fail(
        _ task: FullTask,
        with failure: TransferFailure,
        response: TransferResponse? = nil
    ) async {
        _ = state.unschedule(task.record.id)
        let resumeData = await resumeData(of: task)
        var event = state.failure(failure, of: task, token: resumeData?.token, at: readClock())
        event.response = response ?? event.response
        await conclude(
            [(task.record.id, event)],
            leaving: resumeData,
            removing: resumeData == nil ? task.record.part : nil
        )
    }

    /// Ends a task whose challenge the client has rejected.
    ///
    /// An upload completes with the challenge as its response; any other task fails.
    func endUnanswered(_ task: FullTask) async {
        let id = task.record.id
        let challenge = await challenge(of: id)
        if task.request.kind == .upload, let challenge {
            let event = state.answer(of: task, challenge: challenge, at: readClock())
            return await conclude([(id, event)], removing: task.record.part)
        }
        var refusal = TransferFailure(.refused, reason: "the challenge was not answered")
        refusal.status =
            challenge?.response?.status ?? state.histories[id]?.response?.status ?? 401
        await fail(task, with: refusal)
    }

    private func challenge(of id: Int64) async -> SessionEvent? {
        do throws(DaemonError) {
            return try await journal.challenge(of: id)
        } catch {
            logger.warning("An answer could not be read", metadata: ["error": "\(error)"])
            return nil
        }
    }

    /// Records the ends of tasks in the journal, then notifies clients.
    ///
    /// If the journal cannot be written, the ends are kept in memory and written later.
    func conclude(
        _ outcomes: [(id: Int64, event: SessionEvent)],
        leaving resumeData: ResumeData? = nil,
        removing name: String? = nil
    ) async {
        let ending = Ending(outcomes: outcomes, resumeData: resumeData, unneededFile: name)
        if let error = await record(ending) {
            unrecorded.append(ending)
            waitForSpace(after: error)
            for outcome in outcomes { sendPendingReasons(of: outcome.id) }
        }
        runScheduler()
    }

    /// Retries writing the ends of tasks that the journal could not record.
    func recordEndings() async {
        let endings = unrecorded
        unrecorded = []
        for ending in endings where await record(ending) != nil { unrecorded.append(ending) }
    }

    /// Records the ends of tasks; returns the error if the journal cannot be written.
    private func record(_ ending: Ending) async -> DaemonError? {
        do throws(DaemonError) {
            let events = try await journal.end(
                ending.outcomes,
                leaving: ending.resumeData.map { [$0] } ?? []
            )
            state.count(events)
            state.ended(ending.outcomes.map(\.id), events: events, at: readClock())
            if let name = ending.unneededFile { await removeFiles([name]) }
            await announce(events)
            return nil
        } catch {
            logger.error("The end of a task was not recorded", metadata: ["error": "\(error)"])
            state.unrecorded.formUnion(ending.outcomes.map(\.id).filter { state.ending[$0] != nil })
            return error
        }
    }

    /// Removes expired resume data, once a day.
    func removeExpiredResumeData() async {
        guard state.isResumeDataRemovalDue(at: readClock()) else { return }
        do throws(DaemonError) {
            await removeFiles(try await journal.removeExpiredResumeData(before: readClock()))
        } catch {
            logger.warning("Expired resume data was not removed", metadata: ["error": "\(error)"])
        }
    }

    /// Ends the tasks that have reached their deadline.
    func expire() async {
        for id in state.expired(at: readClock()) {
            do throws(DaemonError) {
                guard let task = try await journal.task(id) else { continue }
                // The task may have ended in the meantime.
                guard state.unschedule(id) else { continue }
                // In a task of its own: a user's worker may be slow to end.
                Task { await giveUp(task) }
            } catch {
                logger.error("A task could not be read", metadata: ["error": "\(error)"])
                state.postponeExpiry(of: id, at: readClock())
            }
        }
    }

    private func giveUp(_ task: FullTask) async {
        await stopAttempt(of: task.record.id)
        let deletion = await deletion(of: task)
        await fail(
            task,
            with: TransferFailure(.timedOut, reason: "the task did not end before its deadline")
        )
        begin(deletion)
    }
}
