import CSystemd

/// Message of the bus, read from front to back.
///
/// Any process on the bus may have sent it, so its content is not trusted: missing values and values of another type
/// are `nil`.
@safe struct BusMessage: ~Copyable {
    private let message: OpaquePointer

    /// Takes ownership of a message.
    init(adopting message: OpaquePointer) { unsafe self.message = message }

    deinit { unsafe _ = sd_bus_message_unref(message) }

    /// Returns whether the message is a certain signal.
    func isSignal(from interface: String, named member: String) -> Bool {
        unsafe sd_bus_message_is_signal(message, interface, member) > 0
    }

    /// Cookie of the call that this message replies to; `nil` for other messages.
    var answered: UInt64? {
        let cookie = unsafe stage_message_answered(message)
        return cookie == 0 ? nil : cookie
    }

    /// Name of the error, if the message is an error reply.
    var error: String? { unsafe Self.text(stage_message_error(message)) }

    /// Unique name of the sender, verified by the bus.
    var sender: String { unsafe Self.text(sd_bus_message_get_sender(message)) ?? "" }

    /// Path of the sending object.
    var path: String { unsafe Self.text(sd_bus_message_get_path(message)) ?? "" }

    private static func text(_ text: UnsafePointer<CChar>?) -> String? {
        unsafe text.map { unsafe String(cString: $0) }
    }
}

extension BusMessage {
    /// Reads a string.
    mutating func readText() -> String? {
        var text: UnsafePointer<CChar>?
        guard unsafe stage_message_read_text(message, &text) > 0 else { return nil }
        return unsafe Self.text(text)
    }

    /// Reads an unsigned 32-bit number.
    mutating func readNumber() -> UInt32? {
        var number: UInt32 = 0
        return unsafe stage_message_read_number(message, &number) > 0 ? number : nil
    }

    /// Reads an array of strings.
    mutating func readTexts() -> [String]? {
        guard enter(SD_BUS_TYPE_ARRAY, of: "s") else { return nil }
        var texts: [String] = []
        while let text = readText() { texts.append(text) }
        return leave() ? texts : nil
    }

    /// Reads properties with their values, of type `a{sv}`.
    mutating func readProperties() -> [String: BusValue]? {
        guard enter(SD_BUS_TYPE_ARRAY, of: "{sv}") else { return nil }
        var properties: [String: BusValue] = [:]
        while enter(SD_BUS_TYPE_DICT_ENTRY, of: "sv") {
            guard let name = readText(), let value = readVariant(), leave() else { return nil }
            properties[name] = value
        }
        return leave() ? properties : nil
    }

    private mutating func readVariant() -> BusValue? {
        var kind: CChar = 0
        var contents: UnsafePointer<CChar>?
        guard unsafe stage_message_peek(message, &kind, &contents) > 0,
            Int(kind) == SD_BUS_TYPE_VARIANT, let type = unsafe Self.text(contents)
        else { return nil }
        guard ["b", "u", "s"].contains(type) else {
            return unsafe stage_message_skip(message) < 0 ? nil : .other
        }
        guard unsafe stage_message_enter(message, kind, contents) > 0 else { return nil }
        let value = readValue(type)
        return leave() ? value : nil
    }

    private mutating func readValue(_ type: String) -> BusValue? {
        switch type {
        case "b":
            var flag: CInt = 0
            return unsafe stage_message_read_flag(message, &flag) > 0 ? .flag(flag != 0) : nil
        case "u":
            return readNumber().map(BusValue.number)
        default:
            return readText().map(BusValue.text)
        }
    }

    private func enter(_ kind: Int, of contents: String) -> Bool {
        unsafe stage_message_enter(message, CChar(kind), contents) > 0
    }

    private func leave() -> Bool { unsafe stage_message_exit(message) >= 0 }
}
