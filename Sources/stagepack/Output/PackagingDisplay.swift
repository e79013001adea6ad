import FoundationEssentials
import StageDisplay
import StageModel
import StagePublish
import Synchronization

/// Shows the progress of packaging at a terminal.
final class PackagingDisplay: Sendable {
    private let activity: Mutex<PackagingActivity>

    /// Creates a display for files of `total` bytes of a pack or an index with this name.
    init(_ subject: String, total: ByteCount) {
        activity = Mutex(PackagingActivity(subject, total: total))
    }

    /// Sets the number of bytes of files that are packed.
    func take(_ bytes: ByteCount) { set(.packing(bytes)) }

    /// Sets the number of bytes that have been compared with an older version.
    func take(compared bytes: ByteCount, of total: ByteCount) { set(.comparing(bytes, of: total)) }

    /// Sets the progress of writing an archive, or of the trial before.
    func take(archive progress: PackagingProgress) {
        set(
            progress.isTrial
                ? .trying(progress.read)
                : .archiving(read: progress.read, written: progress.written)
        )
    }

    private func set(_ phase: PackagingActivity.Phase) { activity.withLock { $0.phase = phase } }

    /// Runs `body`, and draws a line ten times a second until it returns.
    func whileShown<Result: Sendable>(
        isShown: Bool,
        _ body: @Sendable () async -> Result
    ) async -> Result {
        guard isShown else { return await body() }
        let drawing = DrawingLoop { [self] in
            let frame = PackagingFrame(columns: Console.columns, glyphs: Console.glyphs)
            let now = Date().timeIntervalSince1970
            return [frame.line(of: activity.withLock(\.self), at: now)]
        }
        let result = await body()
        drawing.end()
        return result
    }
}
