import CSystemd
import Glibc
import SystemPackage

/// A connection to a message bus, for one thread.
///
/// Nothing here waits. A bus that is not there is connected to once its socket appears, which takes
/// no timer. A connection that was lost stays lost.
@safe final class BusConnection {
    private let bus: OpaquePointer
    /// What was asked and is not answered, by the cookies that answers will have.
    private var asked: [UInt64: BusCall] = [:]

    /// Begins to connect.
    ///
    /// - Throws: the reason, if the address makes no sense or nobody may connect to it. That nobody
    ///   listens there is no error.
    init(address: String) throws(Errno) {
        var bus: OpaquePointer?
        let status = unsafe stage_bus_connect(&bus, address)
        guard let bus = unsafe bus else { throw Errno(rawValue: -status) }
        unsafe self.bus = bus
        guard status >= 0 else { throw Errno(rawValue: -status) }
    }

    deinit {
        // Nothing that was asked matters any more.
        unsafe _ = sd_bus_close_unref(bus)
    }

    /// What poll(2) has to look at.
    var wish: pollfd {
        let file = unsafe stage_bus_descriptor(bus)
        let events = unsafe stage_bus_events(bus)
        return pollfd(fd: file, events: Int16(max(events, 0)), revents: 0)
    }

    /// Whether the bus is not there, and its socket is waited for.
    var awaitsSocket: Bool { unsafe stage_bus_awaits_socket(bus) != 0 }

    /// For how long there is nothing to do unless ``wish`` comes true, or `nil` for ever.
    var patience: Duration? {
        var deadline = UInt64.max
        guard unsafe stage_bus_deadline(bus, &deadline) >= 0 else { return .zero }
        guard deadline != .max else { return nil }
        var now = timespec()
        unsafe clock_gettime(CLOCK_MONOTONIC, &now)
        let microseconds = UInt64(now.tv_sec) * 1_000_000 + UInt64(now.tv_nsec) / 1000
        return .microseconds(Int64(clamping: deadline > microseconds ? deadline - microseconds : 0))
    }

    /// Asks, and does not wait for the answer.
    ///
    /// - Throws: the reason, if the connection is lost or the system is out of memory.
    func send(_ call: BusCall) throws(Errno) {
        var cookie: UInt64 = 0
        let status = unsafe stage_bus_send_call(
            bus,
            call.destination,
            call.path,
            call.interface,
            call.member,
            call.argument,
            &cookie
        )
        guard status >= 0 else { throw Errno(rawValue: -status) }
        asked[cookie] = call
    }

    /// Does what there is to do, and returns what was said, or `nil` if nothing is left to do now.
    ///
    /// - Throws: the reason, if the connection is lost.
    func nextEvent() throws(Errno) -> BusEvent? {
        while true {
            var message: OpaquePointer?
            let status = unsafe stage_bus_process(bus, &message)
            guard status >= 0 else { throw Errno(rawValue: -status) }
            if let message = unsafe message {
                var message = unsafe BusMessage(adopting: message)
                if let event = try event(&message) { return event }
            } else if status == 0 {
                return nil
            }
        }
    }

    private func event(_ message: inout BusMessage) throws(Errno) -> BusEvent? {
        if let cookie = message.answered {
            guard let call = asked.removeValue(forKey: cookie) else { return nil }
            return .answered(call, Self.answer(call, &message))
        }
        if message.isSignal("org.freedesktop.DBus.Local", "Connected") { return .connected }
        if message.isSignal("org.freedesktop.DBus.Local", "Disconnected") {
            throw .connectionReset
        }
        if message.isSignal("org.freedesktop.DBus", "NameOwnerChanged") {
            guard message.sender == "org.freedesktop.DBus", let name = message.readText(),
                message.readText() != nil, let owner = message.readText()
            else { return nil }
            return .owner(name: name, owner: owner)
        }
        if message.isSignal("org.freedesktop.DBus.Properties", "PropertiesChanged") {
            guard let interface = message.readText(), let values = message.readProperties(),
                let lost = message.readTexts()
            else { return nil }
            return .changed(
                sender: message.sender,
                path: message.path,
                interface: interface,
                values,
                lost: lost
            )
        }
        return nil
    }

    private static func answer(_ call: BusCall, _ message: inout BusMessage) -> BusAnswer? {
        if let error = message.error { return .refusal(error) }
        switch call.purpose {
        case .rule: return nil
        case .owner: return message.readText().map(BusAnswer.text)
        case .properties: return message.readProperties().map(BusAnswer.properties)
        case .connectivity: return message.readNumber().map(BusAnswer.number)
        }
    }
}
