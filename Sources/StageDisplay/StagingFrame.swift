import StageEngine
package import StageModel

/// The layout of the progress of a run: a pure function of the state, the time and the width of the terminal.
///
/// A bar and the numbers next to it always show the same amount: downloaded bytes until the download is
/// complete, then unpacked bytes.
package struct StagingFrame: Sendable {
    /// The columns of the terminal.
    package var columns: Int
    /// The characters of bars and spinners.
    package var glyphs: DisplayGlyphs

    /// Maximum number of lines for single packs.
    private static let packLines = 8

    /// Creates a layout for a terminal.
    package init(columns: Int, glyphs: DisplayGlyphs = .unicode) {
        self.columns = columns
        self.glyphs = glyphs
    }

    /// Returns the lines for a time in seconds: the packs that are being staged, then the total.
    package func lines(of activity: StagingActivity, at time: Double) -> [StyledText] {
        guard let progress = activity.progress else {
            return activity.manifest.map { [line(of: $0, at: time)] } ?? []
        }
        let active = activity.activePacks
        let total = total(progress)
        let names = active.map(\.id.text) + [total.label]
        let row = row(names: names)
        var lines = active.prefix(Self.packLines).map { line(of: $0, in: activity, row, at: time) }
        if active.count > Self.packLines {
            let text = "  and \((active.count - Self.packLines).quantity(of: "other pack"))"
            lines.append(StyledText(text, style: .faint).fitted(toColumns: usable))
        }
        return lines + [line(of: total, rate: activity.rate, row)]
    }

    /// Returns the final line of a pack that has ended, for a time in seconds; `nil` if it has not ended.
    package func endLine(
        of id: PackID,
        in activity: StagingActivity,
        at time: Double
    ) -> StyledText? {
        guard let pack = activity.progress?[id], let outcome = pack.outcome else { return nil }
        let (isStaged, texts) = endTexts(
            of: outcome,
            pack: pack,
            duration: activity.duration(of: id, at: time)
        )
        let mark =
            isStaged
            ? StyledText(glyphs.success, style: .success)
            : StyledText(glyphs.failure, style: .failure)
        let text = texts.first { 4 + id.text.terminalColumns + $0.terminalColumns <= usable }
        let shown = text ?? texts.last ?? ""
        // Shortens the name rather than the outcome.
        let name = id.text.fitted(toColumns: max(usable - 4 - shown.terminalColumns, 8))
        let line = mark + " " + StyledText(name, style: .name) + "  " + shown
        return line.fitted(toColumns: usable)
    }

    /// Returns the texts for the end of a pack, from the longest to the shortest.
    private func endTexts(
        of outcome: StagingOutcome,
        pack: PackProgress,
        duration: Double
    ) -> (isStaged: Bool, texts: [String]) {
        switch outcome {
        case .staged(let figures):
            let parts = [(figures.transferred, "downloaded"), (figures.reused, "reused")]
            let text = parts.filter { $0.0 > .zero }.map { "\($0) \($1)" }.joined(separator: ", ")
            let time = duration.inClockWords
            let size = max(figures.transferred, figures.reused)
            return (true, ["version \(pack.version): \(text) in \(time)", "\(size) in \(time)"])
        case .alreadyStaged:
            return (true, ["version \(pack.version): installed by another process", "installed"])
        case .failed:
            // The report of the run prints the reason, together with those of other failures.
            return (false, ["not installed"])
        }
    }

    /// The usable columns of a line; the last one stays empty, since some terminals wrap after it.
    private var usable: Int { max(columns - 1, 1) }

    // MARK: - Columns

    /// The columns of the parts of a line.
    private struct Row {
        var name: Int
        /// The columns of the bar; 0 if there is no space for a bar.
        var bar: Int
        var tail: Int
        var style: Style

        enum Style: Comparable { case narrow, small, medium, wide }
    }

    private func row(names: [String]) -> Row {
        let (style, tail, mostName): (Row.Style, Int, Int) =
            switch columns {
            case ..<50: (.narrow, 16, 12)
            case ..<72: (.small, 29, 16)
            case ..<120: (.medium, 41, 24)
            default: (.wide, 60, 48)
            }
        let longest = names.map(\.terminalColumns).max() ?? 0
        var row = Row(name: min(longest, mostName), bar: 0, tail: tail, style: style)
        // Subtracts two columns for the spinner, and a space on each side of the bar.
        row.bar = usable - 2 - row.name - 1 - 1 - tail
        if row.bar < 4 { row.bar = 0 }
        return row
    }

    private func line(_ head: StyledText, bar: StyledText, tail: StyledText) -> StyledText {
        let parts = bar.pieces.isEmpty ? head + " " + tail : head + " " + bar + " " + tail
        return parts.fitted(toColumns: usable)
    }

    // MARK: - Packs

    private func line(
        of pack: PackProgress,
        in activity: StagingActivity,
        _ row: Row,
        at time: Double
    ) -> StyledText {
        let name = StyledText(pack.id.text.filling(columns: row.name), style: .name)
        if let text = waitingText(of: pack, in: activity, at: time) {
            let spinner = StyledText(glyphs.spinner(at: time), style: .accent)
            return (spinner + " " + name + " " + text).fitted(toColumns: usable)
        }
        let amount = Amount(pack)
        let bar = glyphs.bar(amount.fraction, columns: row.bar)
        var tail = amount.text(row.style == .narrow)
        if row.style == .wide {
            tail = amount.percentText + "  " + tail
            if !amount.isUnpacking, let host = pack.source?.hostForDisplay {
                tail += " from \(host)"
            }
        }
        return line(StyledText("  ") + name, bar: bar, tail: StyledText(tail))
    }

    /// Returns the reason why the pack makes no progress; `nil` if it makes progress.
    private func waitingText(
        of pack: PackProgress,
        in activity: StagingActivity,
        at time: Double
    ) -> String? {
        switch pack.phase {
        case .waitingForOther: return "another process installs it"
        case .waitingForSharedDownload: return "waits for a download that it shares"
        case .waitingForPack(let other): return "shares the archive of \(other)"
        case .waiting(let reason, let seconds):
            return seconds >= 1 ? "\(reason) (up to \(Int(seconds)) s)" : reason
        case .publishing: return "writing to disk"
        case .receiving:
            guard let seconds = activity.silence(of: pack, at: time) else { return nil }
            let host = pack.source?.hostForDisplay ?? "the server"
            return "waiting for \(host) (\(seconds) s)"
        case .queued, .unpacking, .ended: return nil
        }
    }

    // MARK: - The total

    private struct Total {
        var label: String
        var amount: Amount
    }

    private func total(_ progress: StagingProgress) -> Total {
        let ended = progress.packs.count { $0.outcome != nil }
        let label = "\(ended) of \(progress.packs.count.quantity(of: "pack"))"
        return Total(label: label, amount: Amount(progress))
    }

    private func line(of total: Total, rate: TransferRate, _ row: Row) -> StyledText {
        let amount = total.amount
        let label = StyledText(total.label.filling(columns: row.name))
        var text = amount.text(row.style == .narrow)
        if row.style == .wide { text = amount.percentText + "  " + text }
        for part in speedTexts(of: amount, at: rate) where row.style > .narrow {
            if (text + part).terminalColumns <= row.tail { text += part }
        }
        let bar = glyphs.bar(amount.fraction, columns: row.bar)
        return line(StyledText("  ") + label, bar: bar, tail: StyledText(text))
    }

    private func speedTexts(of amount: Amount, at rate: TransferRate) -> [String] {
        guard !amount.isUnpacking, let speed = rate.bytesPerSecond, speed >= 1 else { return [] }
        let seconds = Double((amount.all - amount.done).rawValue) / speed
        return [", \(ByteCount(Int64(speed)))/s", ", \(seconds.inClockWords) left"]
    }

    // MARK: - The manifest

    private func line(
        of request: StagingActivity.ManifestRequest,
        at time: Double
    ) -> StyledText {
        let spinner = StyledText(glyphs.spinner(at: time), style: .accent)
        let origin = request.source?.hostForDisplay.map { " from \($0)" } ?? ""
        let seconds = Int(max(0, time - request.beganAt))
        let text = request.waiting.map { ": \($0)" } ?? ""
        let age = seconds > 0 ? " (\(seconds) s)" : ""
        return (spinner + " manifest" + origin + text + age).fitted(toColumns: usable)
    }
}
