package import StageModel

/// The state of packaging that the display shows; a value without side effects.
package struct PackagingActivity: Equatable, Sendable {
    /// The current work, with its progress.
    package enum Phase: Equatable, Sendable {
        /// Packing files; the value is the number of packed bytes.
        case packing(ByteCount)
        /// Looking for incompressible files, or for the size of an archive; the value is the number of bytes read.
        case trying(ByteCount)
        /// Writing an archive; the values are the bytes of files read, and the bytes of the archive written.
        case archiving(read: ByteCount, written: ByteCount)
        /// Comparing content with an older version; the values are the compared bytes, and the total.
        case comparing(ByteCount, of: ByteCount)
    }

    /// The name of the pack or the index.
    package let subject: String
    /// The bytes of all files.
    package let total: ByteCount
    /// The current work.
    package var phase = Phase.packing(.zero)

    /// Creates the initial state.
    package init(_ subject: String, total: ByteCount) {
        self.subject = subject
        self.total = total
    }
}

/// The layout of the progress of packaging: one line.
///
/// An archive has no bar, and shows the written bytes: a compressor reads a lot of input before it writes
/// output, so the bytes read say little about the remaining time.
package struct PackagingFrame: Sendable {
    private let columns: Int
    private let glyphs: DisplayGlyphs

    /// Creates a layout for a terminal.
    package init(columns: Int, glyphs: DisplayGlyphs = .unicode) {
        self.columns = columns
        self.glyphs = glyphs
    }

    /// Returns the line for a time in seconds.
    package func line(of activity: PackagingActivity, at time: Double) -> StyledText {
        switch activity.phase {
        case .packing(let done):
            barLine(
                activity,
                amount: Amount(done: done, all: activity.total),
                verb: "packed",
                at: time
            )
        case .trying(let done):
            barLine(
                activity,
                amount: Amount(done: done, all: activity.total),
                verb: "examined",
                at: time
            )
        case .comparing(let done, let all):
            barLine(activity, amount: Amount(done: done, all: all), verb: "compared", at: time)
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
        amount: Amount,
        verb: String,
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
