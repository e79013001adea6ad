public import StageModel

/// The state of packaging that a person watches; a pure value.
public struct PackagingActivity: Equatable, Sendable {
    /// The work that is being done.
    public enum Phase: Equatable, Sendable {
        /// Files are packed: so many of their bytes are done.
        case packing(ByteCount)
        /// An archive is written: so many bytes of files were read, and so many of the archive written.
        case archiving(read: ByteCount, written: ByteCount)
        /// Content is compared with an older version: so many bytes of so many.
        case comparing(ByteCount, of: ByteCount)
    }

    /// The name of the pack or the index.
    public let subject: String
    /// The bytes of all files.
    public let total: ByteCount
    /// The work that is being done.
    public var phase = Phase.packing(.zero)

    /// Creates the state at the start.
    public init(_ subject: String, total: ByteCount) {
        self.subject = subject
        self.total = total
    }
}

/// The layout of the progress of packaging: one line.
///
/// A compressor takes in much before it gives anything out, so the bytes that were read say little about the end. An
/// archive therefore has no bar, and shows the bytes that were written.
public struct PackagingFrame: Sendable {
    private let columns: Int
    private let glyphs: DisplayGlyphs

    /// Creates a layout for a terminal.
    public init(columns: Int, glyphs: DisplayGlyphs = .unicode) {
        self.columns = columns
        self.glyphs = glyphs
    }

    /// The line to show at a time, in seconds.
    public func line(of activity: PackagingActivity, at time: Double) -> StyledText {
        switch activity.phase {
        case .packing(let done):
            barLine(activity, Amount(done: done, all: activity.total), "packed", at: time)
        case .comparing(let done, let all):
            barLine(activity, Amount(done: done, all: all), "compared", at: time)
        case .archiving(let read, let written):
            archiveLine(activity, read: read, written: written, at: time)
        }
    }

    private var usable: Int { max(columns - 1, 1) }

    private func head(_ activity: PackagingActivity, at time: Double) -> StyledText {
        let name = activity.subject.fitted(toColumns: max(8, columns * 2 / 5))
        return StyledText(glyphs.spinner(at: time), style: .accent) + " "
            + StyledText(name, style: .name)
    }

    private func barLine(
        _ activity: PackagingActivity,
        _ amount: Amount,
        _ verb: String,
        at time: Double
    ) -> StyledText {
        let head = head(activity, at: time)
        let texts = ["\(amount.text(false)) \(verb)", "\(amount.text(true)) \(verb)"]
        for text in texts {
            let rest = usable - head.terminalColumns - 2 - text.terminalColumns
            guard rest >= 8 else { continue }
            return head + " " + glyphs.bar(amount.fraction, columns: rest) + " " + text
        }
        return (head + " " + amount.text(true)).fitted(toColumns: usable)
    }

    private func archiveLine(
        _ activity: PackagingActivity,
        read: ByteCount,
        written: ByteCount,
        at time: Double
    ) -> StyledText {
        let head = head(activity, at: time)
        let rest = read < activity.total ? "\(read) of \(activity.total) read" : "everything read"
        let line = head + "  \(written) written, \(rest)"
        guard line.terminalColumns > usable else { return line }
        return (head + "  \(written) written").fitted(toColumns: usable)
    }
}
