import Glibc
import Logging
import StageSystem
import SystemPackage

/// Main loop of a monitor's thread: exchanges messages between the bus and ``BusWatch``, reads power supplies and the
/// kernel's messages about the network, and sleeps.
struct ConditionLoop: ~Copyable {
    private let sources: ConditionSources
    private let board: SharedConditions
    private let logger: Logger
    private let start = ContinuousClock.now

    private var watch = BusWatch()
    private var connection: BusConnection?
    /// Start time of the current connection.
    private var connectionStart = Duration.zero
    private var backoff = Backoff(longest: .seconds(300), stableTime: .seconds(60))
    /// Time of the next connection attempt; `nil` for none.
    private var connectionTime: Duration? = .zero

    /// Power supplies, read while UPower reports nothing.
    private var supplies: PowerSupplies?
    private var deviceEvents: DeviceEvents?

    private var networkEvents: NetworkEvents?
    private var inventory = NetworkInventory()
    private var networkDebouncer: NetworkChangeDebouncer

    private var debouncer: ConditionDebouncer
    private var hasSettled = false

    /// Maximum number of messages processed per iteration.
    private static let messagesPerIteration = 64
    /// Time for a bus to accept connections after its socket has appeared.
    private static let listeningTime = Duration.seconds(1)

    init(sources: ConditionSources, board: SharedConditions, logger: Logger) {
        self.sources = sources
        self.board = board
        self.logger = logger
        networkDebouncer = NetworkChangeDebouncer(delay: sources.debounce)
        debouncer = ConditionDebouncer(delay: sources.debounce, initial: board.current)
    }

    /// Runs until the board requests the end.
    mutating func run() {
        watchNetwork()
        while true {
            if board.isStopping { return board.end() }
            connectIfDue()
            exchange()
            readSupplies()
            readNetwork()
            publish()
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
        // A slow bus is left to the timeout of sd-bus.
        if let connection, !connection.awaitsSocket { return }
        connectionStart = now
        do throws(Errno) {
            connection = try BusConnection(address: sources.busAddress)
        } catch {
            lose(error)
        }
    }

    private mutating func exchange() {
        guard let connection else { return }
        do throws(Errno) {
            for _ in 0..<Self.messagesPerIteration {
                guard let event = try connection.nextEvent() else { return }
                log(event)
                for call in watch.handle(event) { try connection.send(call) }
            }
        } catch {
            lose(error)
        }
    }

    /// Discards the readings of the bus, and schedules a reconnection.
    private mutating func lose(_ reason: Errno) {
        logger.debug(
            "there is no message bus",
            metadata: ["bus.address": "\(sources.busAddress)", "bus.reason": "\(reason)"]
        )
        connection = nil
        _ = watch.handle(.lost)
        connectionTime = now + backoff.next(afterLasting: now - connectionStart)
    }

    private mutating func log(_ event: BusEvent) {
        switch event {
        case .connected:
            connectionTime = nil
            logger.debug("connected", metadata: ["bus.address": "\(sources.busAddress)"])
        case .answered(let call, .refusal(let name)) where call.purpose == .rule:
            logger.warning(
                "the message bus does not report changes",
                metadata: ["bus.rule": "\(call.argument ?? "")", "bus.error": "\(name)"]
            )
        default:
            break
        }
    }
}

// MARK: - Power supplies

extension ConditionLoop {
    /// Reads the power supplies when UPower has disappeared, and when the kernel reports a change.
    private mutating func readSupplies() {
        guard Conditions(readings: watch.readings).isOnBattery == nil else {
            supplies = nil
            deviceEvents = nil
            return
        }
        if supplies == nil {
            do throws(FileError) {
                deviceEvents = try DeviceEvents()
            } catch {
                // The supplies are then read once.
                logger.debug(
                    "the kernel does not report changes of devices",
                    metadata: ["error": "\(error)"]
                )
            }
        }
        let hasEvents = takeDeviceEvents()
        if supplies == nil || hasEvents {
            supplies = PowerSupplies(sysfs: sources.sysfs)
        }
    }

    private func takeDeviceEvents() -> Bool {
        deviceEvents?.takeAll(of: "power_supply") ?? false
    }
}

// MARK: - The kernel's network

extension ConditionLoop {
    private mutating func watchNetwork() {
        guard sources.watchesNetwork else { return }
        do throws(FileError) {
            networkEvents = try NetworkEvents()
        } catch {
            loseNetwork(error)
        }
    }

    /// Reads the pending messages, and reports a change that is due.
    private mutating func readNetwork() {
        do throws(FileError) {
            for event in try takeNetworkEvents() where inventory.handle(event) {
                networkDebouncer.add(at: now)
            }
        } catch {
            loseNetwork(error)
        }
        guard networkDebouncer.takeReport(at: now) else { return }
        logger.debug("the network has changed")
        board.reportNetworkChange()
    }

    private func takeNetworkEvents() throws(FileError) -> [NetworkEvent] {
        try networkEvents?.takePending() ?? []
    }

    /// Continues without the kernel's messages: a container or a sandbox may not permit the socket.
    private mutating func loseNetwork(_ error: FileError) {
        networkEvents = nil
        logger.notice(
            "The kernel does not report changes of the network",
            metadata: ["error": "\(error)"]
        )
    }
}

// MARK: - Publishing and waiting

extension ConditionLoop {
    private var conditions: Conditions {
        var conditions = Conditions(readings: watch.readings)
        if let supplies { conditions.isOnBattery = supplies.isOnBattery }
        return conditions
    }

    private mutating func publish() {
        if debouncer.take(conditions, at: now) {
            board.publish(debouncer.current)
            logger.debug("conditions", metadata: debouncer.current.metadata)
        }
        // A missing bus reports nothing, so waiting for it is pointless.
        let isAlone = connection?.awaitsSocket ?? true
        if !hasSettled, isAlone || watch.isSettled || now >= sources.readingTimeout {
            hasSettled = true
            board.completeFirstReadings()
        }
    }

    /// Waits for the next event or deadline.
    private mutating func sleep() {
        let bus = connection?.pollDescriptor ?? pollfd(fd: -1, events: 0, revents: 0)
        let events = deviceEvents?.descriptor.rawValue ?? -1
        let network = networkEvents?.descriptor.rawValue ?? -1
        var descriptors = [
            pollfd(fd: board.signal.descriptor.rawValue, events: Int16(POLLIN), revents: 0),
            bus,
            pollfd(fd: events, events: Int16(POLLIN), revents: 0),
            pollfd(fd: network, events: Int16(POLLIN), revents: 0),
        ]
        // After an interruption or a memory error, the loop checks everything anyway.
        unsafe _ = poll(&descriptors, nfds_t(descriptors.count), timeout)
        if descriptors[0].revents != 0 { board.signal.lower() }
        // The bus may not accept connections on its new socket yet, and no event reports when it does.
        if descriptors[1].revents != 0, connectionTime == nil, connection?.awaitsSocket == true {
            connectionTime = now + Self.listeningTime
        }
    }

    /// Timeout for poll(2) in milliseconds; -1 for none.
    private var timeout: CInt {
        let settlingTime = hasSettled ? nil : sources.readingTimeout
        let deadlines = [
            connectionTime, debouncer.deadline, networkDebouncer.deadline, settlingTime,
        ]
        let deadline = deadlines.compactMap(\.self).min()
        let waits = [deadline.map { $0 - now }, connection?.timeout].compactMap(\.self)
        guard let wait = waits.min() else { return -1 }
        // Rounded up, so that the thread does not wake just before the deadline and spin.
        return min(wait.wholeMilliseconds, 3_600_000)
    }
}

extension Conditions {
    /// Conditions as log metadata.
    fileprivate var metadata: Logger.Metadata {
        func word(_ value: (some CustomStringConvertible)?) -> Logger.MetadataValue {
            "\(value?.description ?? "unknown")"
        }
        return [
            "network.connectivity": "\(connectivity.rawValue)",
            "network.expensive": word(isExpensive),
            "power.battery": word(isOnBattery),
            "power.saving": word(isSavingPower),
        ]
    }
}
