/// Decides which of the messages that repeat are written: the first one, and one for each period with the number of those
/// that were left out; a pure value.
package struct RepetitionFilter: Sendable {
    /// The decision about a message.
    package enum Decision: Equatable, Sendable {
        /// It is written, after so many like it that were left out.
        case write(leftOut: Int)
        /// It is left out.
        case leaveOut
    }

    /// The seconds for which a message that was written is not written again.
    package static let period = 600.0
    /// The most messages that are remembered; the one that was written first is forgotten for a new one.
    package static let limit = 256

    private struct Entry {
        var writtenAt: Double
        var leftOut = 0
    }

    private var entries: [String: Entry] = [:]

    /// Creates a filter that has seen nothing.
    package init() {}

    /// Decides about a message that is written at a time, in seconds.
    package mutating func decide(_ message: String, at time: Double) -> Decision {
        if let entry = entries[message], time - entry.writtenAt < Self.period {
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
