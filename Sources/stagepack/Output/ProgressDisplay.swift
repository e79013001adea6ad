import FoundationEssentials
import Glibc
import StageEngine
import StageModel
import StagePack
import Synchronization

/// Shows the progress of staging on standard error, in the style that was asked for.
final class ProgressDisplay: Sendable {
    private let style: OutputOptions.ProgressStyle
    private let observer: (@Sendable (StagingProgress) -> Void)?
    private let state: Mutex<State>

    private struct State {
        var progress: StagingProgress
        var rate = TransferRate()
        var drawnLines = 0
        var lastReport = 0.0
    }

    /// Creates a display of a plan's progress; `auto` is resolved here, and `observer` told besides.
    init(
        _ plan: Plan,
        _ options: OutputOptions,
        _ observer: (@Sendable (StagingProgress) -> Void)?
    ) {
        self.observer = observer
        style = Self.resolve(options)
        state = Mutex(State(progress: StagingProgress(plan)))
    }

    private static func resolve(_ options: OutputOptions) -> OutputOptions.ProgressStyle {
        guard options.progress == .auto else { return options.progress }
        if options.quiet || options.json { return .none }
        return Console.isInteractive ? .bars : .lines
    }

    /// The progress of each pack.
    var packs: [PackProgress] { state.withLock { $0.progress.packs } }

    /// Takes note of an event, and shows it where the style has a line for it.
    func take(_ id: PackID, _ event: StagingEvent) {
        let lines = state.withLock { state -> [String] in
            state.progress.apply(event, to: id)
            // Under the lock, so that what is told comes in order.
            observer?(state.progress)
            switch style {
            case .lines: return Self.line(for: event, id).map { [$0] } ?? []
            case .json: return Self.jsonLine(&state, id, event).map { [$0] } ?? []
            case .auto, .bars, .none: return []
            }
        }
        for line in lines { Console.note(line) }
    }

    /// Runs `body` and draws bars ten times a second until it returns.
    func whileShown<Result: Sendable>(
        _ body: @Sendable () async -> Result
    ) async -> Result {
        guard style == .bars else { return await body() }
        return await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.drawRepeatedly() }
            let result = await body()
            group.cancelAll()
            await group.waitForAll()
            draw(isLast: true)
            return result
        }
    }

    private func drawRepeatedly() async {
        // What ends within a moment needs no bar.
        do {
            try await Task.sleep(for: .milliseconds(300))
            while true {
                draw(isLast: false)
                try await Task.sleep(for: .milliseconds(100))
            }
        } catch {
            // Cancelled: everything has ended.
        }
    }

    private func draw(isLast: Bool) {
        let text = state.withLock { state -> String in
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
        if !text.isEmpty { Console.write(text, to: STDERR_FILENO) }
    }

    private static func line(for event: StagingEvent, _ id: PackID) -> String? {
        switch event {
        case .waitingForOther: "\(id): another process is staging it; waiting"
        case .waiting(let reason, let seconds) where seconds >= 1:
            "\(id): waiting up to \(Int(seconds)) s: \(reason)"
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
        guard let pack = state.progress.packs.first(where: { $0.id == id }) else { return nil }
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
