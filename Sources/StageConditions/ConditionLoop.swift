import Glibc
import Logging
import StageSystem
import SystemPackage

/// What the thread of a monitor does: it carries messages between the bus and ``BusWatch``, reads
/// power supplies, and sleeps.
struct ConditionLoop: ~Copyable {
    private let sources: ConditionSources
    private let board: ConditionBoard
    private let logger: Logger
    private let start = ContinuousClock.now

    private var watch = BusWatch()
    private var connection: BusConnection?
    /// When the connection there is was begun.
    private var connectionStart = Duration.zero
    private var backoff = Backoff(longest: .seconds(300), stableTime: .seconds(60))
    /// When to connect, whether there is a connection or not.
    private var connectionTime: Duration? = .zero

    /// The supplies, while UPower does not tell of them.
    private var supplies: PowerSupplies?
    private var deviceEvents: DeviceEvents?

    private var debouncer: ConditionDebouncer
    private var hasSettled = false

    /// How many messages are taken in before anything else gets its turn.
    private static let messagesPerTurn = 64
    /// How long a bus whose socket has appeared may take to listen to it.
    private static let listeningTime = Duration.seconds(1)

    init(sources: ConditionSources, board: ConditionBoard, logger: Logger) {
        self.sources = sources
        self.board = board
        self.logger = logger
        debouncer = ConditionDebouncer(
            delay: sources.debounce,
            batteryStep: sources.batteryStep,
            initial: board.current
        )
    }

    /// Follows conditions until the board says to stop.
    mutating func run() {
        while true {
            let requests = board.takeRequests()
            if requests.isStopping {
                board.end()
                for reader in requests.readers { reader.resume(returning: board.current) }
                return
            }
            connectIfDue()
            exchange(requests)
            readSupplies(again: !requests.readers.isEmpty)
            publish()
            for reader in requests.readers { reader.resume(returning: board.current) }
            sleep()
        }
    }

    private var now: Duration { start.duration(to: .now) }
}

// MARK: - The bus

extension ConditionLoop {
    private mutating func connectIfDue() {
        guard let time = connectionTime, time <= now else { return }
        connectionTime = nil
        // A bus that takes its time to answer is left to it: sd-bus knows when that is too long.
        if let connection, !connection.awaitsSocket { return }
        connectionStart = now
        do throws(Errno) {
            connection = try BusConnection(address: sources.busAddress)
        } catch {
            lose(error)
        }
    }

    private mutating func exchange(_ requests: ConditionBoard.Requests) {
        guard let connection else { return }
        do throws(Errno) {
            if requests.checksConnectivity {
                for call in watch.checkConnectivity() { try connection.send(call) }
            }
            for _ in 0..<Self.messagesPerTurn {
                guard let event = try connection.nextEvent() else { return }
                tell(event)
                for call in watch.handle(event) { try connection.send(call) }
            }
        } catch {
            lose(error)
        }
    }

    /// Forgets what was said, and plans to connect again.
    private mutating func lose(_ reason: Errno) {
        logger.debug(
            "there is no message bus",
            metadata: ["bus.address": "\(sources.busAddress)", "bus.reason": "\(reason)"]
        )
        connection = nil
        _ = watch.handle(.lost)
        connectionTime = now + backoff.next(afterLasting: now - connectionStart)
    }

    private mutating func tell(_ event: BusEvent) {
        switch event {
        case .connected:
            connectionTime = nil
            logger.debug("connected", metadata: ["bus.address": "\(sources.busAddress)"])
        case .answered(let call, .refusal(let name)) where call.purpose == .rule:
            logger.warning(
                "the message bus does not tell of changes",
                metadata: ["bus.rule": "\(call.argument ?? "")", "bus.error": "\(name)"]
            )
        default:
            break
        }
    }
}

// MARK: - Power supplies

extension ConditionLoop {
    /// Reads the supplies if UPower has just gone, if the kernel told of some, or if told to.
    private mutating func readSupplies(again: Bool) {
        guard Conditions(readings: watch.readings).isOnBattery == nil else {
            supplies = nil
            deviceEvents = nil
            return
        }
        if supplies == nil {
            do throws(FileError) {
                deviceEvents = try DeviceEvents()
            } catch {
                // Then there is only what is read on demand.
                logger.debug(
                    "the kernel does not tell of devices",
                    metadata: ["error": "\(error)"]
                )
            }
        }
        let hasEvents = takeDeviceEvents()
        if supplies == nil || hasEvents || again {
            supplies = PowerSupplies(sysfs: sources.sysfs)
        }
    }

    private func takeDeviceEvents() -> Bool {
        deviceEvents?.takeAll(of: "power_supply") ?? false
    }
}

// MARK: - Telling, and waiting

extension ConditionLoop {
    private var conditions: Conditions {
        var conditions = Conditions(readings: watch.readings)
        if let supplies {
            conditions.isOnBattery = supplies.isOnBattery
            conditions.batteryPercentage = supplies.batteryPercentage
        }
        return conditions.overridden(by: sources.overrides)
    }

    private mutating func publish() {
        if debouncer.take(conditions, at: now) {
            board.publish(debouncer.current)
            logger.debug("conditions", metadata: debouncer.current.metadata)
        }
        // A bus that is not there says nothing, however long it is waited for.
        let isAlone = connection?.awaitsSocket ?? true
        if !hasSettled, isAlone || watch.isSettled || now >= sources.patience {
            hasSettled = true
            board.settle()
        }
    }

    /// Waits until there is something to do.
    private mutating func sleep() {
        let bus = connection?.wish ?? pollfd(fd: -1, events: 0, revents: 0)
        let events = deviceEvents?.descriptor.rawValue ?? -1
        var wishes = [
            pollfd(fd: board.signal.descriptor.rawValue, events: Int16(POLLIN), revents: 0),
            bus,
            pollfd(fd: events, events: Int16(POLLIN), revents: 0),
        ]
        // Interrupted, or out of memory: the loop looks at everything anyway.
        unsafe _ = poll(&wishes, nfds_t(wishes.count), timeout)
        if wishes[0].revents != 0 { board.signal.lower() }
        // A socket that has appeared may not be listened to yet, and nothing tells when it is.
        if wishes[1].revents != 0, connectionTime == nil, connection?.awaitsSocket == true {
            connectionTime = now + Self.listeningTime
        }
    }

    /// For how many milliseconds there is nothing to do unless something happens; -1 for ever.
    private var timeout: CInt {
        let settlingTime = hasSettled ? nil : sources.patience
        let deadline = [connectionTime, debouncer.deadline, settlingTime].compactMap(\.self).min()
        let waits = [deadline.map { $0 - now }, connection?.patience].compactMap(\.self)
        guard let wait = waits.min() else { return -1 }
        // Rounded up: a thread that wakes too early would wait again, for no time at all.
        let milliseconds = max(wait, .zero) / .milliseconds(1)
        return CInt(min(milliseconds.rounded(.up), 3_600_000))
    }
}

extension Conditions {
    /// What is known, for a log.
    fileprivate var metadata: Logger.Metadata {
        func word(_ value: (some CustomStringConvertible)?) -> Logger.MetadataValue {
            "\(value?.description ?? "unknown")"
        }
        return [
            "network.connectivity": "\(connectivity.rawValue)",
            "network.expensive": word(isExpensive),
            "network.constrained": word(isConstrained),
            "power.battery": word(isOnBattery),
            "power.percentage": word(batteryPercentage),
            "power.saving": word(isSavingPower),
        ]
    }
}
