import CSystemd
import Glibc
import SystemPackage

/// Non-blocking connection to a message bus, used by one thread.
///
/// If no bus is running, the connection is established once its socket appears, without a timer. A lost connection is
/// not reopened.
@safe final class BusConnection {
    private let bus: OpaquePointer
    /// Unanswered calls by their cookies.
    private var pendingCalls: [UInt64: BusCall] = [:]

    /// Starts to connect.
    ///
    /// - Throws: The system's error, if the address is invalid or access is denied. A missing bus is not an error.
    init(address: String) throws(Errno) {
        var bus: OpaquePointer?
        let status = unsafe stage_bus_connect(&bus, address)
        guard let bus = unsafe bus else { throw Errno(rawValue: -status) }
        unsafe self.bus = bus
        guard status >= 0 else { throw Errno(rawValue: -status) }
    }

    deinit {
        // Discards unanswered calls.
        unsafe _ = sd_bus_close_unref(bus)
    }

    /// Descriptor and events for poll(2).
    var pollDescriptor: pollfd {
        let file = unsafe stage_bus_descriptor(bus)
        let events = unsafe stage_bus_events(bus)
        return pollfd(fd: file, events: Int16(max(events, 0)), revents: 0)
    }

    /// Set while the bus is not running and the connection waits for its socket.
    var awaitsSocket: Bool { unsafe stage_bus_awaits_socket(bus) != 0 }

    /// Time until the connection needs attention without an event of ``pollDescriptor``; `nil` for no limit.
    var timeout: Duration? {
        var deadline = UInt64.max
        guard unsafe stage_bus_deadline(bus, &deadline) >= 0 else { return .zero }
        guard deadline != .max else { return nil }
        var now = timespec()
        unsafe clock_gettime(CLOCK_MONOTONIC, &now)
        let microseconds = UInt64(now.tv_sec) * 1_000_000 + UInt64(now.tv_nsec) / 1000
        return .microseconds(Int64(clamping: deadline > microseconds ? deadline - microseconds : 0))
    }

    /// Sends a call without waiting for the reply.
    ///
    /// - Throws: The system's error, if the connection is lost or memory is exhausted.
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
        pendingCalls[cookie] = call
    }

    /// Processes pending messages up to the next event; returns `nil` if there is none.
    ///
    /// - Throws: The system's error, if the connection is lost.
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
            guard let call = pendingCalls.removeValue(forKey: cookie) else { return nil }
            return .answered(call, Self.answer(to: call, in: &message))
        }
        if message.isSignal(from: "org.freedesktop.DBus.Local", named: "Connected") {
            return .connected
        }
        if message.isSignal(from: "org.freedesktop.DBus.Local", named: "Disconnected") {
            throw .connectionReset
        }
        if message.isSignal(from: "org.freedesktop.DBus", named: "NameOwnerChanged") {
            guard message.sender == "org.freedesktop.DBus", let name = message.readText(),
                message.readText() != nil, let owner = message.readText()
            else { return nil }
            return .owner(name: name, owner: owner)
        }
        if message.isSignal(from: "org.freedesktop.DBus.Properties", named: "PropertiesChanged") {
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

    private static func answer(to call: BusCall, in message: inout BusMessage) -> BusAnswer? {
        if let error = message.error { return .refusal(error) }
        switch call.purpose {
        case .rule: return nil
        case .owner: return message.readText().map(BusAnswer.text)
        case .properties: return message.readProperties().map(BusAnswer.properties)
        }
    }
}
