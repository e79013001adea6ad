/// Value of a property, restricted to the types that conditions use.
enum BusValue: Hashable {
    /// Boolean (`b`).
    case flag(Bool)
    /// Unsigned 32-bit number (`u`).
    case number(UInt32)
    /// String (`s`).
    case text(String)
    /// Value of any other type.
    case other

    /// The value, if it is a boolean.
    var flag: Bool? {
        guard case .flag(let value) = self else { return nil }
        return value
    }

    /// The value, if it is an unsigned number.
    var number: UInt32? {
        guard case .number(let value) = self else { return nil }
        return value
    }

    /// The value, if it is a string.
    var text: String? {
        guard case .text(let value) = self else { return nil }
        return value
    }
}
