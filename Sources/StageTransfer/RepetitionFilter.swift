/// Suppresses repeated log messages: the first one is written, and then one per period, with the number of suppressed ones;
/// a pure value.
package struct RepetitionFilter: Sendable {
    /// The decision about a message.
    package enum Decision: Equatable, Sendable {
        /// Write the message; `leftOut` equal ones were suppressed since the last one was written.
        case write(leftOut: Int)
        /// Suppress the message.
        case leaveOut
    }

    /// The seconds for which a written message is suppressed when it repeats.
    package static let period = 600.0
    /// The maximum number of remembered messages; a new one replaces the one that was written first.
    package static let limit = 256

    private struct Entry {
        var writtenAt: Double
        var leftOut = 0
    }

    private var entries: [String: Entry] = [:]

    /// Creates a filter without remembered messages.
    package init() {}

    /// Decides about a message that is logged at a time, in seconds since 1970, and counts it.
    ///
    /// After the clock was set back, a message is written again.
    package mutating func decide(_ message: String, at time: Double) -> Decision {
        if let entry = entries[message], (0..<Self.period).contains(time - entry.writtenAt) {
            entries[message]?.leftOut += 1
            return .leaveOut
        }
        let leftOut = entries[message]?.leftOut ?? 0
        if entries[message] == nil, entries.count >= Self.limit,
            let oldest = entries.min(by: { $0.value.writtenAt < $1.value.writtenAt })
        {
            entries[oldest.key] = nil
        }
        entries[message] = Entry(writtenAt: time)
        return .write(leftOut: leftOut)
    }
}
