/// Events that no reader has requested yet, in order.
///
/// Its size is limited by the number of tasks, however long no reader requests an event: of the events that only
/// describe the state of a running task, it keeps the latest of each kind.
struct EventBuffer {
    /// Kind of an event that a later one of the same task replaces.
    private enum Kind {
        case progress
        case resumption
        case wait
    }

    private struct Slot: Hashable {
        var task: ObjectIdentifier
        var kind: Kind

        init(of task: URLSessionTask, _ kind: Kind) {
            (self.task, self.kind) = (ObjectIdentifier(task), kind)
        }

        /// Returns the slot of an event; `nil` for one that no other event replaces.
        init?(_ event: BackgroundTransferEvent) {
            switch event {
            case .progress(let task, _, _): self.init(of: task, .progress)
            case .resumed(let task, _, _): self.init(of: task, .resumption)
            case .waiting(let task, _): self.init(of: task, .wait)
            default: return nil
            }
        }
    }

    /// Events by their numbers, which increase with time; replaced ones leave gaps.
    private var deliveries: [Int: EventRelay.Delivery] = [:]
    /// Numbers of the events that may be replaced; their tasks are retained by the events.
    private var replaceable: [Slot: Int] = [:]
    private var first = 0
    private var end = 0

    /// Adds an event.
    mutating func add(_ delivery: EventRelay.Delivery) {
        guard delivery.done == nil, let slot = Slot(delivery.event) else { return append(delivery) }
        if case .resumed(let task, _, _) = delivery.event {
            // The progress counts from here on, so it must follow.
            for kind in [Kind.progress, .resumption] { remove(Slot(of: task, kind)) }
        }
        if let number = replaceable[slot] {
            deliveries[number] = delivery
        } else {
            replaceable[slot] = end
            append(delivery)
        }
    }

    /// Removes and returns the earliest event.
    mutating func take() -> EventRelay.Delivery? {
        while first < end {
            defer { first += 1 }
            guard let delivery = deliveries.removeValue(forKey: first) else { continue }
            if let slot = Slot(delivery.event), replaceable[slot] == first {
                replaceable[slot] = nil
            }
            return delivery
        }
        return nil
    }

    private mutating func append(_ delivery: EventRelay.Delivery) {
        deliveries[end] = delivery
        end += 1
    }

    private mutating func remove(_ slot: Slot) {
        guard let number = replaceable.removeValue(forKey: slot) else { return }
        deliveries[number] = nil
    }
}
