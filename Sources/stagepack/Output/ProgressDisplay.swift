import FoundationEssentials
import Glibc
import StageControl
import StageEngine
import StageModel
import StagePack
import StageSystem
import StagingService
import Synchronization

/// Shows on standard error what happens while packs are staged, in the style that was asked for.
final class StagingDisplay: Sendable {
    private let options: OutputOptions
    private let display = Mutex<ProgressDisplay?>(nil)

    /// Creates a display that shows nothing yet.
    init(_ options: OutputOptions) { self.options = options }

    /// Shows what happened; may be called from any thread.
    func take(_ update: StagingUpdate) {
        switch update {
        case .manifest(let event): ManifestProgress.tell(event, options)
        case .began(let plan):
            let new = ProgressDisplay(plan, options: options)
            display.withLock { $0 = new }
        case .pack(let id, let event): display.withLock { $0 }?.take(id, event)
        case .ended: display.withLock { $0.take() }?.end()
        case .held(let reasons):
            guard !options.quiet, options.progress != .none else { return }
            Console.note("waiting: \(reasons.map(\.text).joined(separator: "; "))")
        case .leftToDaemon(let task):
            guard !options.quiet, !options.json else { return }
            Console.note("the daemon goes on with it; 'stagepack cancel \(task)' ends it")
        case .cancelled:
            guard !options.json else { return }
            Console.note("it was cancelled with 'stagepack cancel'")
        }
    }
}

/// Shows the progress of the packs of a plan.
private final class ProgressDisplay: Sendable {
    private let style: OutputOptions.ProgressStyle
    private let state: Mutex<State>
    /// Held while bars are written, which takes as long as a terminal makes it take.
    private let output = Mutex<Void>(())
    /// Draws bars ten times a second.
    private let drawing: Mutex<Task<Void, Never>?>

    private struct State {
        var progress: StagingProgress
        var rate = TransferRate()
        var drawnLines = 0
        var lastReport = 0.0
        var hasEnded = false
    }

    /// Creates a display of a plan's progress; `auto` is resolved here.
    init(_ plan: Plan, options: OutputOptions) {
        style = Self.resolve(options)
        state = Mutex(State(progress: StagingProgress(plan)))
        drawing = Mutex(nil)
        guard style == .bars else { return }
        let task = Task { [weak self] in
            // A run that ends within a moment needs no bar.
            var pause = Duration.milliseconds(300)
            // Cancelled: everything has ended.
            while (try? await Task.sleep(for: pause)) != nil {
                await withBlockingThread { [weak self] in self?.draw(isLast: false) }
                pause = .milliseconds(100)
            }
        }
        drawing.withLock { $0 = task }
    }

    /// Removes the bars.
    func end() {
        drawing.withLock { $0.take() }?.cancel()
        draw(isLast: true)
    }

    private static func resolve(_ options: OutputOptions) -> OutputOptions.ProgressStyle {
        guard options.progress == .auto else { return options.progress }
        if options.quiet || options.json { return .none }
        return Console.isInteractive ? .bars : .lines
    }

    /// Takes note of an event, and shows it where the style has a line for it.
    func take(_ id: PackID, _ event: StagingEvent) {
        let lines = state.withLock { state -> [String] in
            state.progress.apply(event, to: id)
            switch style {
            case .lines: return Self.line(for: event, id).map { [$0] } ?? []
            case .json: return Self.jsonLine(&state, id, event).map { [$0] } ?? []
            case .auto, .bars, .none: return []
            }
        }
        for line in lines { Console.note(line) }
    }

    private func draw(isLast: Bool) {
        // The state is not held while a terminal is written to, which may stand still.
        output.withLock { _ in
            let text = state.withLock { state -> String in
                guard !state.hasEnded else { return "" }
                state.hasEnded = isLast
                return Self.drawing(&state, isLast: isLast)
            }
            if !text.isEmpty { Console.write(text, to: STDERR_FILENO) }
        }
    }

    /// The text that draws the bars over those before, or removes them.
    private static func drawing(_ state: inout State, isLast: Bool) -> String {
        state.rate.sample(state.progress.transferred, at: Date().timeIntervalSince1970)
        var text = state.drawnLines > 0 ? "\u{1B}[\(state.drawnLines)A" : ""
        guard !isLast else {
            defer { state.drawnLines = 0 }
            return state.drawnLines > 0 ? text + "\u{1B}[J" : ""
        }
        let lines = ProgressBars(columns: Console.columns).lines(state.progress, state.rate)
        for line in lines { text += "\u{1B}[2K\(line)\n" }
        text += "\u{1B}[J"
        state.drawnLines = lines.count
        return text
    }

    private static func line(for event: StagingEvent, _ id: PackID) -> String? {
        switch event {
        case .waitingForOther: "\(id): another process is staging it; waiting"
        case .waitingForSharedDownload:
            "\(id): waiting for the download that it shares with another pack"
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

    /// A line at most every tenth of a second, and one for whatever has to be told.
    private static func jsonLine(
        _ state: inout State,
        _ id: PackID,
        _ event: StagingEvent
    ) -> String? {
        guard let pack = state.progress[id] else { return nil }
        let now = Date().timeIntervalSince1970
        var progress = FetchProgress(
            received: pack.received,
            downloadSize: pack.downloadSize,
            unpacked: pack.unpacked,
            installedSize: pack.installedSize
        )
        switch event {
        case .received, .unpacked:
            guard now - state.lastReport >= 0.1 else { return nil }
        case .waiting(let reason, _):
            progress.waitingFor = reason
        case .waitingForOther:
            progress.waitingFor = "another process"
        case .waitingForSharedDownload:
            progress.waitingFor = "the download for another pack"
        default:
            break
        }
        state.lastReport = now
        return Console.json(PackLine(pack: id, progress: progress), pretty: false)
    }
}

/// Tells a person what is waited for while there is no manifest yet: everything else is quick.
enum ManifestProgress {
    static func tell(_ event: StagingEvent, _ options: OutputOptions) {
        guard !options.quiet, options.progress != .none, options.progress != .json else { return }
        switch event {
        case .waiting(let reason, let seconds) where seconds >= 1:
            Console.note("manifest: waiting up to \(Int(seconds)) s: \(reason)")
        case .mirrorFailed(_, let reason):
            Console.note("manifest: \(reason)")
        default:
            break
        }
    }
}

/// One line of `--progress json`.
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
