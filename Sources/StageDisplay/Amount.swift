import StageEngine
import StageModel

/// The part of a whole that a bar and the numbers next to it show.
struct Amount: Equatable, Sendable {
    var done: ByteCount
    var all: ByteCount
    var isUnpacking: Bool

    /// Creates a part of a whole that is not unpacked.
    init(done: ByteCount, all: ByteCount) {
        self.done = done
        self.all = all
        isUnpacking = false
    }

    /// Creates the downloaded part of a pack or, once the download is complete, the unpacked part.
    init(_ pack: PackProgress) {
        isUnpacking = pack.phase == .unpacking && pack.received >= pack.downloadSize
        done = isUnpacking ? pack.unpacked : pack.received
        all = isUnpacking ? pack.installedSize : pack.downloadSize
    }

    /// Creates the downloaded part of all packs or, once their downloads are complete, the unpacked part.
    init(_ progress: StagingProgress) {
        isUnpacking = progress.received >= progress.downloadSize
        done = isUnpacking ? progress.unpacked : progress.received
        all = isUnpacking ? progress.installedSize : progress.downloadSize
    }

    /// The part as a fraction, from 0 to 1.
    var fraction: Double { all <= .zero ? 1 : Double(done.rawValue) / Double(all.rawValue) }

    /// The part in percent, three columns wide and rounded down, so that 100 means complete.
    var percentText: String {
        let text = "\(Int((min(max(fraction, 0), 1) * 100).rounded(.down)))"
        return String(repeating: " ", count: max(0, 3 - text.count)) + text + " %"
    }

    /// Returns the amount as `12.3 MB of 40.0 MB`, or in the short form as `12.3/40.0 MB`; marks unpacked
    /// bytes.
    func text(_ isShort: Bool) -> String {
        guard isShort else {
            return isUnpacking ? "unpacked \(done) of \(all)" : "\(done) of \(all)"
        }
        if isUnpacking { return "unpacked \(percentText)" }
        let (part, whole) = ("\(done)".split(separator: " "), "\(all)".split(separator: " "))
        return part.last == whole.last
            ? "\(part.first ?? "")/\(all)" : "\(done)/\(all)"
    }
}

extension Double {
    /// A number of seconds as `8 s`, `3 min 20 s` or `2 h 5 min`, rounded up.
    var inClockWords: String {
        let whole = Int(min(max(self, 0).rounded(.up), 359_999))
        if whole < 60 { return "\(whole) s" }
        if whole < 3600 { return "\(whole / 60) min \(whole % 60) s" }
        return "\(whole / 3600) h \(whole % 3600 / 60) min"
    }
}

extension String {
    /// The host and port of a URL, escaped for display; `nil` if the URL has no host.
    var hostForDisplay: String? {
        guard let start = endOfScheme else { return nil }
        // Compares bytes: in Swift, '@' and a combining character after it form one `Character`.
        let authority = utf8[start...].prefix { !$0.endsAuthority }
        let at = authority.lastIndex(of: UInt8(ascii: "@"))
        let host = Substring(at.map { authority[$0...].dropFirst() } ?? authority)
        return host.isEmpty ? nil : String(host).forDisplay(atMost: 60)
    }
}
