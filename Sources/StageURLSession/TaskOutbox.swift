/// Queue of tasks about which requests have to be sent to the daemon, in the order in which they were added.
///
/// A state machine without I/O. There are two queues with one thread each: new uploads have their own, since the
/// daemon copies the file before it responds. Only one thread processes a task at a time, so that its requests keep
/// their order. Additions are numbered, and a waiter waits for those since a position.
struct TaskOutbox<Element: AnyObject & Sendable> {
    /// A queue that one thread processes.
    enum Lane: CaseIterable {
        /// Tasks and changes to which the daemon responds at once.
        case requests
        /// Uploads that the daemon does not have yet.
        case uploads
    }

    fileprivate struct Entry {
        var element: Element
        var lane: Lane
        /// Numbers of the additions that the next request covers.
        var numbers: [Int]
        /// Numbers of the additions made while a thread processed the task.
        var next: [Int] = []
        var isInWork = false
        var hasFailed = false
    }

    fileprivate struct Queue {
        var ids: [ObjectIdentifier] = []
        var next = 0
        var isRunning = false
        /// Numbers of waiting tasks: those that have not failed, and those that were returned to the end of the queue.
        var newCount = 0
        var failedCount = 0
    }

    private struct Waiter {
        /// Number of unsent additions that the waiter waits for.
        var left: Int
        var acceptsFailure: Bool
        var body: @Sendable () -> Void
    }

    private var entries: [ObjectIdentifier: Entry] = [:]
    private var queues: [Lane: Queue] = [:]
    private var lastNumber = 0
    /// Last number when a position was last taken: a queued task that is added again after that gets a further number.
    private var lastPosition = 0
    /// Numbers of the additions that were not sent yet, with the waiters for each.
    private var unsent: [Int: [Int]] = [:]
    private var waiters: [Int: Waiter] = [:]
    private var lastWaiter = 0
    private var due: [@Sendable () -> Void] = []
    private var isCalling = false
    /// `true` while no tasks are processed, since no daemon can be reached.
    private(set) var isPaused = false

    /// `true` if all requests were sent.
    var isEmpty: Bool { entries.isEmpty }

    /// Adds a task; returns whether its queue needs a thread.
    mutating func add(_ element: Element, to lane: Lane) -> Bool {
        let id = ObjectIdentifier(element)
        guard var entry = entries.removeValue(forKey: id) else {
            append(Entry(element: element, lane: lane, numbers: [giveNumber()]))
            return start(lane)
        }
        if entry.isInWork {
            if entry.next.last ?? 0 <= lastPosition { entry.next.append(giveNumber()) }
        } else if entry.numbers.last ?? 0 <= lastPosition {
            entry.numbers.append(giveNumber())
        }
        entries[id] = entry
        return false
    }

    /// Returns the next tasks of a queue; if there are none, its thread must end.
    mutating func take(_ lane: Lane, atMost limit: Int) -> [Element] {
        guard var queue = queues.removeValue(forKey: lane) else { return [] }
        defer { queues[lane] = queue }
        var taken: [Element] = []
        while !isPaused, taken.count < limit, queue.next < queue.ids.count {
            let id = queue.ids[queue.next]
            queue.next += 1
            guard let entry = entries[id], entry.lane == lane, !entry.isInWork else { continue }
            entries[id]?.isInWork = true
            queue.count(entry, by: -1)
            taken.append(entry.element)
        }
        if queue.next == queue.ids.count { (queue.ids, queue.next) = ([], 0) }
        if taken.isEmpty { queue.isRunning = false }
        return taken
    }

    /// Removes tasks whose requests were sent, and adds those again that were added meanwhile.
    ///
    /// - Returns: The queues that need a thread.
    mutating func finish(_ elements: [Element], lane: (Element) -> Lane) -> [Lane] {
        var lanes: [Lane] = []
        for element in elements {
            let id = ObjectIdentifier(element)
            guard let entry = entries.removeValue(forKey: id) else { continue }
            didSend(entry.numbers)
            guard !entry.next.isEmpty else { continue }
            let lane = lane(element)
            append(Entry(element: element, lane: lane, numbers: entry.next))
            if start(lane) { lanes.append(lane) }
        }
        return lanes
    }

    /// Queues a task again while a thread processes it, for a request with its remaining changes.
    ///
    /// Callers that wait for additions of the task wait for that request, too.
    mutating func addRest(of element: Element) {
        let id = ObjectIdentifier(element)
        guard var entry = entries[id], entry.isInWork else { return }
        (entry.numbers, entry.next) = ([], entry.numbers + entry.next)
        entries[id] = entry
    }

    /// Returns unsent tasks to their queue, at its front or at its end.
    mutating func giveBack(_ elements: [Element], asLast: Bool) {
        for element in asLast ? elements : elements.reversed() {
            let id = ObjectIdentifier(element)
            guard var entry = entries[id] else { continue }
            entry.numbers += entry.next
            (entry.next, entry.isInWork, entry.hasFailed) = ([], false, asLast)
            entries[id] = entry
            queues[entry.lane]?.putBack(id, asLast: asLast)
            queues[entry.lane]?.count(entry, by: 1)
        }
    }

    /// Returns whether a queue has waiting tasks, and all of them were returned to its end.
    func hasFailedTasksOnly(_ lane: Lane) -> Bool {
        guard !isPaused, let queue = queues[lane] else { return false }
        return queue.newCount == 0 && queue.failedCount > 0
    }

    /// Stops processing until ``resume()``.
    mutating func pause() { isPaused = true }

    /// Resumes processing; returns the queues that need a thread.
    mutating func resume() -> [Lane] {
        isPaused = false
        return Lane.allCases.filter { lane in
            guard let queue = queues[lane], queue.newCount + queue.failedCount > 0 else {
                return false
            }
            return start(lane)
        }
    }

    /// Removes a task that has ended.
    mutating func remove(_ element: Element) {
        guard let entry = entries.removeValue(forKey: ObjectIdentifier(element)) else { return }
        if !entry.isInWork { queues[entry.lane]?.count(entry, by: -1) }
        didSend(entry.numbers + entry.next)
    }

    /// Returns the current position, for a waiter.
    mutating func takePosition() -> Int {
        lastPosition = lastNumber
        return lastPosition
    }

    /// Makes ``takeDueWaiters(hasCalled:)`` return `body` once everything added since a position was sent.
    ///
    /// - Parameters:
    ///   - position: The position; 0 for everything that was added.
    ///   - acceptsFailure: `true` to be called also if the daemon cannot be reached.
    ///   - body: The waiter.
    mutating func wait(
        since position: Int = 0,
        acceptsFailure: Bool,
        _ body: @escaping @Sendable () -> Void
    ) {
        lastPosition = lastNumber
        lastWaiter += 1
        var left = 0
        let range = position + 1..<lastNumber + 1
        let numbers = range.count < unsent.count ? Array(range) : unsent.keys.filter(range.contains)
        for number in numbers where unsent[number] != nil {
            unsent[number]?.append(lastWaiter)
            left += 1
        }
        guard left > 0 else { return due.append(body) }
        waiters[lastWaiter] = Waiter(left: left, acceptsFailure: acceptsFailure, body: body)
    }

    /// Handles a failure to send some tasks.
    mutating func fail(_ elements: [Element]) {
        for element in elements {
            for number in entries[ObjectIdentifier(element)]?.numbers ?? [] {
                let ids = unsent[number] ?? []
                unsent[number] = ids.filter { waiters[$0]?.acceptsFailure == false }
                for id in ids where waiters[id]?.acceptsFailure == true { lower(id) }
            }
        }
    }

    /// Handles a failure to reach the daemon.
    mutating func fail() {
        for (id, waiter) in waiters.sorted(by: { $0.key < $1.key }) where waiter.acceptsFailure {
            due.append(waiter.body)
            waiters[id] = nil
        }
    }

    /// Returns the waiters to be called now, by one thread at a time, which then calls this again with `hasCalled`.
    mutating func takeDueWaiters(hasCalled: Bool) -> [@Sendable () -> Void] {
        if hasCalled { isCalling = false }
        guard !isCalling, !due.isEmpty else { return [] }
        isCalling = true
        defer { due = [] }
        return due
    }

    private mutating func giveNumber() -> Int {
        lastNumber += 1
        unsent[lastNumber] = []
        return lastNumber
    }

    private mutating func didSend(_ numbers: [Int]) {
        for number in numbers {
            for id in unsent.removeValue(forKey: number) ?? [] { lower(id) }
        }
    }

    /// Counts down the additions that a waiter waits for.
    private mutating func lower(_ id: Int) {
        guard var waiter = waiters.removeValue(forKey: id) else { return }
        waiter.left -= 1
        if waiter.left == 0 { due.append(waiter.body) } else { waiters[id] = waiter }
    }

    private mutating func append(_ entry: Entry) {
        let id = ObjectIdentifier(entry.element)
        entries[id] = entry
        queues[entry.lane, default: Queue()].ids.append(id)
        queues[entry.lane]?.count(entry, by: 1)
    }

    private mutating func start(_ lane: Lane) -> Bool {
        guard !isPaused, queues[lane]?.isRunning == false else { return false }
        queues[lane]?.isRunning = true
        return true
    }
}

extension TaskOutbox.Queue {
    fileprivate mutating func count(_ entry: TaskOutbox.Entry, by change: Int) {
        if entry.hasFailed { failedCount += change } else { newCount += change }
    }

    fileprivate mutating func putBack(_ id: ObjectIdentifier, asLast: Bool) {
        if asLast {
            ids.append(id)
        } else if next > 0 {
            next -= 1
            ids[next] = id
        } else {
            ids.insert(id, at: 0)
        }
    }
}
