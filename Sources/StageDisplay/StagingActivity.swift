package import StageEngine
package import StageModel

/// The state of a run that the display shows: the request for the manifest, then the packs, with the times of
/// their last progress.
///
/// A value without side effects; times are in seconds from any fixed instant.
package struct StagingActivity: Equatable, Sendable {
    /// The seconds without data after which a server counts as silent.
    static let silenceThreshold = 1.0

    /// The state of the request for the manifest.
    struct ManifestRequest: Equatable, Sendable {
        var beganAt: Double
        var source: String?
        var waiting: String?
    }

    private(set) var manifest: ManifestRequest?
    private(set) var progress: StagingProgress?
    private(set) var rate = TransferRate()
    private var times: [PackID: Times] = [:]

    private struct Times: Equatable, Sendable {
        var beganAt: Double
        var changedAt: Double
    }

    /// Creates the state of a run that has not begun.
    package init() {}

    /// Applies an event of the request for the manifest.
    package mutating func applyToManifest(_ event: StagingEvent, at time: Double) {
        var request = manifest ?? ManifestRequest(beganAt: time)
        switch event {
        case .connecting(let url):
            request.source = url
            request.waiting = nil
        case .waiting(let reason, _): request.waiting = reason
        default: break
        }
        manifest = request
    }

    /// Starts over with the packs of a plan.
    package mutating func begin(_ plan: Plan) {
        self = StagingActivity()
        progress = StagingProgress(plan)
    }

    /// Applies an event of a pack.
    package mutating func apply(_ event: StagingEvent, to id: PackID, at time: Double) {
        let before = progress?[id]
        progress?.apply(event, to: id)
        guard let pack = progress?[id] else { return }
        var entry = times[id] ?? Times(beganAt: time, changedAt: time)
        if pack != before { entry.changedAt = time }
        times[id] = entry
    }

    /// Records the bytes received so far, for the computation of the speed.
    package mutating func sampleRate(at time: Double) {
        if let progress { rate.sample(progress.transferred, at: time) }
    }

    /// Ends the run, so that no lines are shown.
    package mutating func end() { self = StagingActivity() }

    /// The progress of a pack; `nil` if it is not in the plan.
    package subscript(id: PackID) -> PackProgress? { progress?[id] }

    /// The packs that are being staged: neither queued nor ended.
    var activePacks: [PackProgress] {
        (progress?.packs ?? []).filter { $0.phase != .queued && $0.phase != .ended }
    }

    /// Returns the whole seconds since a server last sent data for a pack; `nil` if the pack is not being
    /// received or the server is not silent.
    func silence(of pack: PackProgress, at time: Double) -> Int? {
        guard pack.phase == .receiving, let since = times[pack.id]?.changedAt,
            time - since >= Self.silenceThreshold
        else { return nil }
        return Int(time - since)
    }

    /// Returns the seconds since the first event of a pack.
    func duration(of id: PackID, at time: Double) -> Double {
        max(0, time - (times[id]?.beganAt ?? time))
    }
}
