import StageEngine
import StageModel

/// Draws the progress of staging for a person at a terminal: a pure function of progress and time.
struct ProgressBars {
    /// The number of columns to fill.
    var columns: Int
    /// The most lines for single packs.
    var packLines = 6

    /// The lines to show, the total last.
    func lines(_ progress: StagingProgress, _ rate: TransferRate) -> [String] {
        let active = progress.packs.filter { $0.phase != .queued && $0.phase != .ended }
        let shown = active.prefix(packLines).map { line(of: $0) }
        return shown + [total(progress, rate)]
    }

    private func line(of pack: PackProgress) -> String {
        let name = String(pack.id.text.prefix(20))
        let padded = name + String(repeating: " ", count: 20 - name.count)
        return fit("  \(padded) \(bar(fraction(of: pack), width: 20)) \(phase(of: pack))")
    }

    private func fraction(of pack: PackProgress) -> Double {
        let total = (pack.downloadSize + pack.installedSize).rawValue
        return total == 0 ? 0 : Double((pack.received + pack.unpacked).rawValue) / Double(total)
    }

    private func phase(of pack: PackProgress) -> String {
        switch pack.phase {
        case .queued: "queued"
        case .waitingForOther: "another process is staging it; waiting"
        case .waitingForSharedDownload: "waiting for the download it shares with another pack"
        case .waiting(let reason, let seconds): "waiting \(Int(seconds)) s: \(reason)"
        case .receiving: "\(pack.received) of \(pack.downloadSize)"
        case .unpacking: "unpacking \(pack.unpacked) of \(pack.installedSize)"
        case .publishing: "writing to disk"
        case .ended: "done"
        }
    }

    private func total(_ progress: StagingProgress, _ rate: TransferRate) -> String {
        let ended = progress.packs.count { $0.outcome != nil }
        var text = "\(ended)/\(progress.packs.count.quantity(of: "pack"))"
        text += " \(bar(progress.fractionCompleted, width: 20))"
        text += " \(progress.received) of \(progress.downloadSize)"
        if let speed = rate.bytesPerSecond {
            text += ", \(ByteCount(Int64(speed)))/s"
            let left = (progress.downloadSize - progress.received).rawValue
            if left > 0, speed > 1 { text += ", \(duration(Double(left) / speed)) left" }
        }
        return fit(text)
    }

    /// `8 s`, `3 min 20 s`, `2 h 5 min`.
    private func duration(_ seconds: Double) -> String {
        let whole = Int(min(seconds.rounded(.up), 359_999))
        if whole < 60 { return "\(whole) s" }
        if whole < 3600 { return "\(whole / 60) min \(whole % 60) s" }
        return "\(whole / 3600) h \(whole % 3600 / 60) min"
    }

    private func bar(_ fraction: Double, width: Int) -> String {
        let filled = Int((min(max(fraction, 0), 1) * Double(width)).rounded(.down))
        return "["
            + String(repeating: "#", count: filled)
            + String(repeating: ".", count: width - filled) + "]"
    }

    private func fit(_ line: String) -> String {
        String(line.prefix(max(columns - 1, 20)))
    }
}

/// How fast bytes come in, smoothed over the last seconds.
struct TransferRate {
    private var samples: [(time: Double, bytes: Int64)] = []

    /// Bytes per second, or `nil` as long as too little is known.
    var bytesPerSecond: Double? {
        guard let first = samples.first, let last = samples.last, last.time - first.time > 0.3
        else {
            return nil
        }
        return max(0, Double(last.bytes - first.bytes) / (last.time - first.time))
    }

    /// Takes note that `bytes` had come in at `time`, in seconds.
    mutating func sample(_ bytes: ByteCount, at time: Double) {
        samples.append((time, bytes.rawValue))
        samples.removeAll { $0.time < time - 4 }
    }
}
