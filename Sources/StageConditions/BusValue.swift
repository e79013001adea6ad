/// The value of a property, of the types that conditions have.
enum BusValue: Hashable {
    /// `b`.
    case flag(Bool)
    /// `u`.
    case number(UInt32)
    /// `d`.
    case real(Double)
    /// `s`.
    case text(String)
    /// Of a type that no condition has.
    case other

    /// The value, if it is a boolean.
    var flag: Bool? {
        guard case .flag(let value) = self else { return nil }
        return value
    }

    /// The value, if it is a number.
    var number: UInt32? {
        guard case .number(let value) = self else { return nil }
        return value
    }

    /// The value, if it is a real number.
    var real: Double? {
        guard case .real(let value) = self else { return nil }
        return value
    }

    /// The value, if it is text.
    var text: String? {
        guard case .text(let value) = self else { return nil }
        return value
    }
}
