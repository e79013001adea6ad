/// Tasks of which the daemon has to be told, each once, in the order in which they were added.
///
/// Decides and does nothing. Tasks wait in two lanes, each worked on by one thread: an upload is created in a lane of its
/// own, since the daemon copies its file before it answers. A task is in one thread's hands at a time, so that requests
/// about it keep their order.
struct TaskOutbox<Element: AnyObject> {
    /// A queue that one thread works on.
    enum Lane: CaseIterable {
        /// Tasks and changes that the daemon answers at once.
        case requests
        /// Uploads that the daemon does not have yet.
        case uploads
    }

    private struct Queue {
        var elements: [Element] = []
        var next = 0
        var isRunning = false
    }

    private var queues: [Lane: Queue] = [:]
    private var waiting: Set<ObjectIdentifier> = []
    /// The tasks in a thread's hands, and whether they are to be told of once more.
    private var inWork: [ObjectIdentifier: Bool] = [:]

    /// Whether no task waits and none is in work.
    var isIdle: Bool { queues.values.allSatisfy { !$0.isRunning } }

    /// Adds a task; returns whether its lane needs a thread.
    mutating func add(_ element: Element, to lane: Lane) -> Bool {
        let id = ObjectIdentifier(element)
        guard inWork[id] == nil else {
            inWork[id] = true
            return false
        }
        guard waiting.insert(id).inserted else { return false }
        queues[lane, default: Queue()].elements.append(element)
        return start(lane)
    }

    /// Takes the next tasks of a lane; when there are none, its thread is to end.
    mutating func take(_ lane: Lane, atMost limit: Int) -> [Element] {
        guard var queue = queues.removeValue(forKey: lane) else { return [] }
        defer { queues[lane] = queue }
        let taken = Array(queue.elements[queue.next...].prefix(limit))
        queue.next += taken.count
        if queue.next == queue.elements.count {
            queue.elements = []
            queue.next = 0
        }
        if taken.isEmpty { queue.isRunning = false }
        for element in taken {
            waiting.remove(ObjectIdentifier(element))
            inWork[ObjectIdentifier(element)] = false
        }
        return taken
    }

    /// Takes in that the daemon was told of tasks; returns those that changed meanwhile and are to be added again.
    mutating func finish(_ elements: [Element]) -> [Element] {
        elements.filter { inWork.removeValue(forKey: ObjectIdentifier($0)) == true }
    }

    /// Drops all tasks that wait, since the daemon cannot be told now.
    mutating func drop() {
        for lane in Lane.allCases {
            queues[lane]?.elements = []
            queues[lane]?.next = 0
        }
        waiting = []
    }

    private mutating func start(_ lane: Lane) -> Bool {
        guard queues[lane]?.isRunning == false else { return false }
        queues[lane]?.isRunning = true
        return true
    }
}
