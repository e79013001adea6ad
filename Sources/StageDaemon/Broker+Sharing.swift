import FoundationEssentials
import Logging
import StageControl
import StageModel
import StageSystem
import SystemPackage

extension Broker {
    /// Names content that several tasks of one user may want at once; `nil` where nothing proves that
    /// it is the same.
    ///
    /// Of one user: to somebody else not even the time it takes may tell that content is here.
    static func contentKey(_ request: TransferRequest, user: UInt32) -> String? {
        // A refusal that is taken as content is nobody else's.
        guard request.kind == .download, let digest = request.sha256?.lowercased(),
            request.acceptsErrorResponses != true, request.method ?? "GET" == "GET"
        else { return nil }
        return "\(user) \(digest)"
    }

    /// Makes a task the one that fetches its content, or one that waits for it.
    func join(_ id: Int64, _ request: TransferRequest, _ record: inout TaskRecord) {
        guard let user = sessions[record.session]?.record.user,
            let key = Self.contentKey(request, user: user)
        else { return }
        if let leader = leaders[key], leader != id, scheduler.items[leader] != nil {
            extras[leader, default: Extra()].followers.append(id)
            extras[id, default: Extra()].leader = leader
            record.blocks.insert(.leader)
        } else {
            leaders[key] = id
            extras[id, default: Extra()].key = key
        }
    }

    /// Forgets a task that has ended; who waited for its content takes over.
    func forget(_ id: Int64) {
        scheduler.remove(id)
        forgetUnreachable(id)
        let extra = extras.removeValue(forKey: id)
        guard let extra, let key = extra.key else { return }
        let waiting = extra.followers.filter { scheduler.items[$0] != nil }
        leaders[key] = waiting.first
        guard let next = waiting.first else { return }
        extras[next, default: Extra()].followers = Array(waiting.dropFirst())
        extras[next]?.key = key
        lead(by: next)
        scheduler.change(next, at: .now) { $0.blocks.remove(.leader) }
        handOver(from: next)
    }

    /// Has another task fetch content where the one that was to do it is held and another is not.
    func handOver(_ request: TransferRequest, _ session: Int64) {
        guard let user = sessions[session]?.record.user,
            let key = Self.contentKey(request, user: user), let leader = leaders[key]
        else { return }
        handOver(from: leader)
    }

    /// Has others fetch the content that tasks fetch which are held by now.
    func handOverAll() {
        for id in Array(leaders.values) { handOver(from: id) }
    }

    private func handOver(from id: Int64) {
        guard let extra = extras[id], let key = extra.key, !extra.followers.isEmpty, isHeld(id),
            let next = extra.followers.first(where: { scheduler.items[$0] != nil && !isHeld($0) })
        else { return }
        extras[id]?.key = nil
        extras[id]?.followers = []
        extras[next, default: Extra()].key = key
        extras[next]?.followers = extra.followers.filter { $0 != next } + [id]
        leaders[key] = next
        lead(by: next)
        scheduler.change(id, at: .now) { $0.blocks.insert(.leader) }
        scheduler.change(next, at: .now) { $0.blocks.remove(.leader) }
    }

    /// Notes at the followers of a task that it fetches their content.
    private func lead(by id: Int64) {
        extras[id]?.leader = nil
        for follower in extras[id]?.followers ?? [] {
            extras[follower]?.leader = id
        }
    }

    /// Whether a task is held by something that may last, and does not hold all others too.
    private func isHeld(_ id: Int64) -> Bool {
        scheduler.holds(of: id, at: .now).contains { hold in
            switch hold.reason {
            case .pausedByClient, .pausedByUser, .earliestBegin, .metered, .constrained, .onBattery,
                .powerSaver, .discretionary, .penalty, .quota, .authentication:
                true
            case .offline, .portal, .disk, .slot, .backoff, .server, .clock: false
            }
        }
    }

    /// Whether a task does nothing but wait for the content that another one fetches.
    private func waits(_ id: Int64) -> Bool {
        scheduler.items[id]?.blocks.contains(.leader) ?? false && live[id] == nil
    }

    /// Makes copies of complete content for the tasks that wait for it.
    func copies(for item: Finisher.Item) async -> [Finisher.Item] {
        var copies: [Finisher.Item] = []
        for id in extras[item.task]?.followers ?? []
        where waits(id) && !isHeld(id) {
            let (name, store) = ("task-\(id)", store)
            guard let file = FilePath.Component("\(name).part.1"),
                let size = item.event.bytesReceived?.rawValue,
                // One that has no room now fetches for itself, later.
                storage.grow(.part(name), to: size, of: item.user) == .granted
            else { continue }
            do throws(FileError) {
                try await withBlockingThread { () throws(FileError) in
                    let copy = try store.parts.file(
                        creating: FilePath(file),
                        permissions: .privateFile
                    )
                    guard let source = try store.parts.file(reading: FilePath(item.file)) else {
                        throw FileError("open", FilePath(item.file), .noSuchFileOrDirectory)
                    }
                    try copy.copyContent(of: source)
                }
            } catch {
                // It fetches for itself, then.
                logger.warning("Content was not shared", metadata: ["error": "\(error)"])
                removeFiles([name])
                continue
            }
            guard waits(id) else {
                removeFiles([name])
                continue
            }
            var copy = item
            copy.task = id
            copy.part = name
            copy.file = file
            scheduler.remove(id)
            copies.append(copy)
        }
        return copies
    }
}
