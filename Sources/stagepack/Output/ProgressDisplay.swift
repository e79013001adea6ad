import StageControl
import StageDisplay
import StageEngine
import StageModel
import StagePack
import StageSystem
import StagingService
import Synchronization

/// Shows the progress of staging on standard error, in the selected style.
///
/// Call ``end()`` after the run, also if it failed.
final class StagingDisplay: Sendable {
    private let options: OutputOptions
    private let style: OutputOptions.ProgressStyle
    private let activity = Mutex(StagingActivity())
    /// The packs whose bytes changed after their last line of JSON.
    private let changed = Mutex<Set<PackID>>([])
    private let throttle = Throttle(interval: .milliseconds(100))
    private let drawing = Mutex<DrawingLoop?>(nil)
    /// The URLs that lines have named, by pack.
    private let named = Mutex<[PackID: Set<String>]>([:])

    /// Creates a display that shows nothing yet; resolves the style `auto`.
    init(_ options: OutputOptions) {
        self.options = options
        style = Self.resolve(options)
    }

    private static func resolve(_ options: OutputOptions) -> OutputOptions.ProgressStyle {
        guard options.progress == .auto else { return options.progress }
        if options.quiet || options.json { return .none }
        return Console.isInteractive ? .bars : .lines
    }

    /// Removes the drawn lines.
    func end() {
        let drawing = drawing.withLock { $0.take() }
        // A later stage of the run uses both again.
        throttle.withoutReports {
            changed.withLock { $0 = [] }
            activity.withLock { $0.end() }
        }
        drawing?.end()
    }

    /// Shows an update; may be called from any thread.
    func take(_ update: StagingUpdate) {
        switch update {
        case .manifest(let event):
            activity.withLock { $0.applyToManifest(event, at: Self.now) }
            draw()
            printManifestEvent(event)
        case .began(let plan):
            activity.withLock { $0.begin(plan) }
            draw()
        case .pack(let id, let event): record(event, of: id)
        case .ended: end()
        case .held(let reasons):
            let text = reasons.map(\.text).joined(separator: "; ")
            var line = RunLine(event: .held)
            line.waitingFor = text
            line.reasons = reasons.map(\.rawValue)
            printLine(line, or: "waiting: \(text)")
        case .leftToDaemon(let task):
            var line = RunLine(event: .leftToDaemon)
            line.transfer = task
            let text = "the daemon continues it; 'stagepack cancel \(task)' ends it"
            if options.progress != .none {
                printLine(line, or: options.json ? nil : text)
            } else if !options.quiet, !options.json {
                Console.note(text)
            }
        case .cancelled:
            if style == .json {
                printJSON(RunLine(event: .cancelled))
            } else if !options.json {
                Console.note("stagepack: warning: it was cancelled with 'stagepack cancel'")
            }
        }
    }

    /// Prints a line about the whole run in the selected style, as JSON or as text.
    ///
    /// With `auto`, text is printed unless `--quiet` is given, which another style overrides.
    private func printLine(_ line: RunLine, or text: String?) {
        switch options.progress {
        case .json: printJSON(line)
        case .auto: if let text { Console.note(text) }
        case .bars, .lines: if let text { Console.note(progress: text) }
        case .none: break
        }
    }

    /// Prints delays while the manifest is downloaded, and in JSON also the requests.
    private func printManifestEvent(_ event: StagingEvent) {
        var line = RunLine(event: .manifest)
        switch event {
        case .connecting(let url):
            line.url = url
            printLine(line, or: nil)
        case .waiting(let reason, let seconds):
            line.waitingFor = reason
            let delay = "manifest: waiting up to \(Int(seconds)) s: \(reason)"
            printLine(line, or: seconds >= 1 ? delay : nil)
        case .mirrorFailed(let url, let reason):
            line.url = url
            line.problem = reason
            printLine(line, or: "manifest: \(reason)")
        default:
            break
        }
    }

    private static let start = SuspendingClock.now

    /// The seconds since the first call, without those in which the machine was suspended.
    ///
    /// Setting the clock changes no rate or duration, and a suspension is no silence of a server.
    private static var now: Double { start.duration(to: .now) / .seconds(1) }

    /// Starts drawing bars, if that is the style.
    private func draw() {
        guard style == .bars else { return }
        drawing.withLock { drawing in
            guard drawing == nil else { return }
            drawing = DrawingLoop { [self] in
                let now = Self.now
                let current = activity.withLock { activity in
                    activity.sampleRate(at: now)
                    return activity
                }
                return Self.frame.lines(of: current, at: now)
            }
        }
    }

    private static var frame: StagingFrame {
        StagingFrame(columns: Console.columns, glyphs: Console.glyphs)
    }

    /// Records an event of a pack, and prints its line if the style has one.
    private func record(_ event: StagingEvent, of id: PackID) {
        let now = Self.now
        let (line, pack) = activity.withLock { activity in
            activity.apply(event, to: id, at: now)
            let line =
                style == .bars ? Self.frame.endLine(of: id, in: activity, at: now) : nil
            return (line, activity[id])
        }
        switch style {
        case .bars:
            if let line { Console.note(line) }
            if Console.isVerbose, line == nil { printLine(for: event, id) }
        case .lines: printLine(for: event, id)
        case .json: if let pack { printJSON(for: pack, event) }
        case .auto, .none: break
        }
    }

    /// Prints the line of an event, if it has one.
    ///
    /// Names each URL once until the pack waits, starts again or uses another mirror: an indexed pack is downloaded in many
    /// ranges of few objects.
    private func printLine(for event: StagingEvent, _ id: PackID) {
        let isNew = named.withLock { named in
            switch event {
            case .connecting(let url): return named[id, default: []].insert(url).inserted
            case .waiting(_, let seconds) where seconds >= 1: named[id] = nil
            case .restarted, .mirrorFailed, .ended: named[id] = nil
            default: break
            }
            return true
        }
        guard isNew, let line = Self.line(for: event, id) else { return }
        Console.note(progress: line)
    }

    private static func line(for event: StagingEvent, _ id: PackID) -> String? {
        switch event {
        case .waitingForOther: "\(id): another process installs it; waiting"
        case .waitingForSharedDownload:
            "\(id): waiting for the download that it shares with another pack"
        case .sharesArchive(let other):
            "\(id): has the archive of '\(other)', which is fetched once"
        case .waiting(let reason, let seconds) where seconds >= 1:
            "\(id): waiting up to \(Int(seconds)) s: \(reason)"
        case .chose(let choice): "\(id): \(TransferReport(choice).text)"
        case .connecting(let url): "\(id): fetching \(url.forDisplay())"
        case .restarted(let reason): "\(id): starting again: \(reason)"
        case .mirrorFailed(_, let reason): "\(id): \(reason)"
        case .ended(.staged(let figures)):
            "\(id): staged (\(figures.transferred) transferred, \(figures.reused) reused)"
        case .ended(.alreadyStaged): "\(id): staged by another process"
        case .waiting, .received, .verified, .unpacked, .publishing, .ended(.failed): nil
        }
    }

    /// Prints a line of JSON: for received and unpacked bytes at most ten times a second, for each other event at once.
    private func printJSON(for pack: PackProgress, _ event: StagingEvent) {
        var waitingFor: String?
        switch event {
        case .received, .unpacked:
            changed.withLock { _ = $0.insert(pack.id) }
            return throttle.run { [self] in
                let ids = changed.withLock { changed in
                    defer { changed = [] }
                    return changed
                }
                for id in ids.sorted() {
                    if let pack = activity.withLock({ $0[id] }) { Self.printJSON(for: pack) }
                }
            }
        case .waiting(let reason, _): waitingFor = reason
        case .waitingForOther: waitingFor = "another process"
        case .waitingForSharedDownload: waitingFor = "the download for another pack"
        case .sharesArchive(let other): waitingFor = "the archive of '\(other)'"
        default: break
        }
        throttle.withoutReports {
            changed.withLock { _ = $0.remove(pack.id) }
            Self.printJSON(for: pack, waitingFor: waitingFor)
        }
    }

    private static func printJSON(for pack: PackProgress, waitingFor: String? = nil) {
        var progress = FetchProgress(
            received: pack.received,
            downloadSize: pack.downloadSize,
            unpacked: pack.unpacked,
            installedSize: pack.installedSize
        )
        progress.waitingFor = waitingFor
        let line = PackLine(pack: pack.id, progress: progress)
        Console.note(progress: Console.json(line, pretty: false))
    }

    /// Prints a line of JSON that is about no pack, between those of packs.
    private func printJSON(_ line: RunLine) {
        throttle.withoutReports { Console.note(progress: Console.json(line, pretty: false)) }
    }
}

/// A line of `--progress json` that is about no pack.
private struct RunLine: Encodable {
    enum Event: String, Encodable {
        case manifest
        case held
        case leftToDaemon
        case cancelled
    }

    var event: Event
    /// A description of the wait; `nil` if nothing waits.
    var waitingFor: String?
    /// The reasons why the daemon's transfer waits.
    var reasons: [String]?
    /// The manifest that is requested.
    var url: String?
    /// The reason why the server of the URL is not used.
    var problem: String?
    /// The number of the daemon's transfer that continues the run.
    var transfer: Int64?

    init(event: Event) { self.event = event }
}

/// One line of `--progress json` about a pack.
private struct PackLine: Encodable {
    var pack: PackID
    var progress: FetchProgress

    enum CodingKeys: CodingKey {
        case pack
    }

    func encode(to encoder: any Encoder) throws {
        try progress.encode(to: encoder)
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(pack, forKey: .pack)
    }
}
