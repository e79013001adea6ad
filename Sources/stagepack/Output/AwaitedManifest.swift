import StageContainer
import StageModel

/// A registered application whose container has no manifest of it yet.
struct AwaitedManifest: CustomStringConvertible {
    /// The application.
    var application: ApplicationID
    /// The reason why the last run got none; `nil` if no run is recorded.
    var problem: String?

    /// The application and the reason.
    var description: String {
        "\(application): no manifest yet" + (problem.map { ": \($0.escapedForDisplay)" } ?? "")
    }
}

extension ContainerScope {
    /// Returns the registered applications of the scope that have no manifest in its containers, readable or not.
    func awaitedManifests(
        besides records: [AcceptedRecord],
        in view: ContainerView
    ) throws(ContainerError) -> [AwaitedManifest] {
        var awaited: [AwaitedManifest] = []
        for id in applications where !records.contains(where: { $0.application == id }) {
            var manifest = AwaitedManifest(application: id)
            for case let reader? in view.readers {
                let history = try reader.history(of: id)
                manifest.problem = manifest.problem ?? history?.lastRun?.problem?.message
            }
            awaited.append(manifest)
        }
        return awaited
    }
}

extension StatusReport {
    /// True if a manifest was accepted, readable or not, or if the options name no registered application.
    var hasManifest: Bool {
        !manifests.isEmpty || parts.contains { !$0.isEmpty && $0.awaited.isEmpty }
    }
}
